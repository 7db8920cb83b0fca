"""A newcomer's virtual environment with gonogo in it, made without a registry.

It sees the packages of this interpreter; what is installed into it stays in it.
"""

from __future__ import annotations

import site
import subprocess
import sys
import sysconfig
from pathlib import Path

SCRIPTS = {"gonogo": "gonogo.cli", "pytest": "pytest", "pip": "pip"}


def make_environment(folder: Path) -> Path:
    """Make the environment; return its folder of programs, for PATH."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    packages = sysconfig.get_path("purelib", vars={"base": str(folder)})
    # addsitedir also reads the .pth files there, such as an editable install's
    lines = [f"import site; site.addsitedir({path!r})" for path in site.getsitepackages()]
    Path(packages, "parent.pth").write_text("\n".join(lines) + "\n")
    programs = folder / "bin"
    for name, module in SCRIPTS.items():
        script = programs / name
        script.write_text(f'#!/bin/sh\nexec "{programs}/python" -m {module} "$@"\n')
        script.chmod(0o755)
    return programs

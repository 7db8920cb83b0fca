"""Make the locks run-pyXYZ.txt and dev-pyXYZ.txt from pyproject.toml.

They hold exact versions with hashes, for this interpreter, and no registry's address.
`make lock` calls it once per supported interpreter. `--for 3.14` makes the locks of a Python that
is not here: uv resolves them, from packages with wheels for it only. The requirements are read here
rather than by the build backend, which would build the whole front end to tell them. The dev lock
holds the run lock's versions and more, so that what is tested is what runs.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
PROJECT = tomllib.loads((HERE.parent / "pyproject.toml").read_text())
OPTIONS = """--quiet --strip-extras --generate-hashes --no-annotate --no-header --no-emit-index-url
--no-emit-find-links --no-emit-trusted-host --no-emit-options --allow-unsafe --resolver=backtracking
"""
UV_OPTIONS = """--quiet --generate-hashes --no-annotate --no-header --only-binary :all:
--python-platform x86_64-manylinux_2_28 --no-python-downloads"""
UPGRADE = [] if "--keep" in sys.argv[1:] else ["--upgrade"]
"""With --keep only what pyproject.toml newly asks for is added."""
ELSEWHERE = sys.argv[sys.argv.index("--for") + 1] if "--for" in sys.argv else None
VERSION = ELSEWHERE or f"{sys.version_info.major}.{sys.version_info.minor}"


def wanted(extra: str) -> set[str]:
    """The requirements of an extra and of the bare project.

    References to our own extras are followed.
    """
    found = set(PROJECT["project"]["dependencies"])
    for line in PROJECT["project"]["optional-dependencies"][extra]:
        own = re.fullmatch(r"gonogo\[([\w,]+)\]", line)
        found |= set().union(*map(wanted, own[1].split(","))) if own else {line}
    return found


def lock(extra: str, name: str, *constraints: Path) -> Path:
    """Write one lock; `constraints` are locks whose versions it must keep."""
    target = HERE / f"{name}-py{VERSION.replace('.', '')}.txt"
    if ELSEWHERE:
        tool = ["uv", "pip", "compile", "--python-version", ELSEWHERE, *UV_OPTIONS.split()]
    else:
        tool = ["piptools", "compile", *OPTIONS.split()]
    command = [sys.executable, "-m", *tool, *UPGRADE, "-o", str(target), "-"]
    lines = sorted(wanted(extra)) + [f"-c {path}" for path in constraints]
    environment = {key: value for key, value in os.environ.items() if key != "PIP_FIND_LINKS"}
    subprocess.run(command, input="\n".join(lines), text=True, check=True, env=environment)
    return target


lock("dev", "dev", lock("all", "run"))

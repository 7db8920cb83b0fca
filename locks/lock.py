"""Make the locks run-pyXYZ.txt, demo-pyXYZ.txt and dev-pyXYZ.txt from pyproject.toml.

What runs; what runs and builds a checkout; what tests, lint and docs need, too. They hold exact
versions with hashes, for this interpreter, and no registry's address.
`make lock` calls it once per supported interpreter. `--for 3.14` makes the locks of a Python that
is not here: uv resolves them, from packages with wheels for it only. The requirements are read here
rather than by the build backend, which would build the whole front end to tell them. Each lock
holds the versions of the one before and more, so that what is tested is what runs.
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


def wanted(requirement: str | dict[str, str]) -> set[str]:
    """Return the plain requirements behind one line of pyproject.toml.

    References to our own extras and to groups are followed; each brings the bare project along.
    """
    if isinstance(requirement, dict):
        return group(requirement["include-group"])
    extras = re.fullmatch(r"gonogo\[([\w,]+)\]", requirement)
    if extras is None:
        return {requirement}
    project = PROJECT["project"]
    by_extra = project["optional-dependencies"]
    lines = [line for extra in extras[1].split(",") for line in by_extra[extra]]
    return set(project["dependencies"]).union(*map(wanted, lines))


def group(name: str) -> set[str]:
    """Return the plain requirements of a dependency group."""
    return set().union(*map(wanted, PROJECT["dependency-groups"][name]))


def lock(name: str, requirements: set[str], *constraints: Path) -> Path:
    """Write one lock; `constraints` are locks whose versions it must keep."""
    target = HERE / f"{name}-py{VERSION.replace('.', '')}.txt"
    if ELSEWHERE:
        tool = ["uv", "pip", "compile", "--python-version", ELSEWHERE, *UV_OPTIONS.split()]
    else:
        tool = ["piptools", "compile", *OPTIONS.split()]
    command = [sys.executable, "-m", *tool, *UPGRADE, "-o", str(target), "-"]
    lines = sorted(requirements) + [f"-c {path}" for path in constraints]
    environment = {key: value for key, value in os.environ.items() if key != "PIP_FIND_LINKS"}
    subprocess.run(command, input="\n".join(lines), text=True, check=True, env=environment)
    return target


run = lock("run", wanted("gonogo[all]"))
demo = lock("demo", wanted("gonogo[all]") | group("build"), run)
lock("dev", group("dev"), demo)

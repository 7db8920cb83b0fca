"""The requirements of the simulator on this host: an interpreter, four libraries, space.

Each missing one is reported with its remedy.
"""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.wormhole.place import PYTHON_VARIABLE, Unavailable

VERSIONS = ("3.12", "3.10")
"""The versions of Python for which ttnn has wheels, the better one first."""
LIBRARIES = {
    "libgmp.so.10": "libgmp10",
    "libmpfr.so.6": "libmpfr6",
    "libmpc.so.3": "libmpc3",
    "libatomic.so.1": "libatomic1",
}
"""Debian's package for each library: the compiler needs the first three, ttnn the last."""
NEEDED_BYTES = 3 * 2**30
"""The finished folder has 1.3 GB, and its compiled kernels need more.

pip and the wheel of the toolchain need the rest for a moment.
"""
MIN_GLIBC = (2, 34)
_PROBE = "import sys, ensurepip, venv; print('%d.%d' % sys.version_info[:2])"


def check(folder: Path) -> None:
    """Check the machine, the libraries and the space. Raises Unavailable."""
    machine, system = platform.machine(), platform.system()
    if (machine, system) != ("x86_64", "Linux"):
        raise Unavailable(f"ttnn has wheels for x86-64 Linux only; this is {machine} {system}")
    name, version = platform.libc_ver()
    if name != "glibc" or tuple(int(part) for part in version.split(".")[:2]) < MIN_GLIBC:
        least = ".".join(map(str, MIN_GLIBC))
        raise Unavailable(
            f"ttnn's wheel needs glibc {least} or newer; this is {name or 'another libc'} {version}"
        )
    missing = missing_libraries()
    if missing:
        raise Unavailable(
            f"missing {', '.join(missing)}; run: apt-get install -y "
            f"{' '.join(LIBRARIES[library] for library in missing)}"
        )
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < NEEDED_BYTES:
        raise Unavailable(
            f"{free / 2**30:.1f} GiB free in {folder}; the simulator needs "
            f"{NEEDED_BYTES / 2**30:.0f} GiB"
        )
    if not os.access(folder, os.W_OK):
        raise Unavailable(f"{folder} can't be written to")


def missing_libraries(names: Iterable[str] = tuple(LIBRARIES)) -> list[str]:
    """Return the libraries that the dynamic linker doesn't find."""
    return [name for name in names if not _loads(name)]


def interpreter() -> tuple[str, str]:
    """Return (program, version) of a Python that ttnn has a wheel for.

    GONOGO_SIM_PYTHON may name it; otherwise it is the first that runs. Raises Unavailable.
    """
    named = os.environ.get(PYTHON_VARIABLE)
    for candidate in [named] if named else candidates():
        version = _version(candidate)
        if version in VERSIONS:
            return candidate, version
        if named:
            finding = version or "nothing that runs and can make virtual environments"
            raise Unavailable(
                f"{PYTHON_VARIABLE}={named} is {finding}; ttnn needs {' or '.join(VERSIONS)}"
            )
    raise Unavailable(
        f"no Python {' or '.join(VERSIONS)} with venv on PATH or in pyenv, which ttnn "
        "needs: install python3.12 and python3.12-venv "
        "(apt-get install -y python3.12-venv where the distribution has it), or name one "
        f"in {PYTHON_VARIABLE}"
    )


def candidates() -> list[str]:
    """Return the programs to try, in order: on PATH, this one, and those of pyenv.

    pyenv's shims on PATH fail unless a version is chosen.
    """
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    pyenv_programs = [
        str(program)
        for version in VERSIONS
        for program in sorted(pyenv.glob(f"{version}.*/bin/python{version}"), reverse=True)
    ]
    return [
        *(f"python{version}" for version in VERSIONS),
        "python3",
        sys.executable,
        *pyenv_programs,
    ]


def _loads(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def _version(program: str) -> str | None:
    """Return the version of a program that runs and can make virtual environments, such as 3.12.

    A shim may exist and fail.
    """
    try:
        done = subprocess.run(
            [program, "-c", _PROBE], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None

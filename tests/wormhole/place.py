"""The simulated Wormhole's folder and name, and whether it exists; defined only here."""

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
MENDS = HERE / "mends.py"
"""The module that the simulator's Python imports when it starts."""
LAYOUT = "1"
"""Changes when folders of older versions of this package can no longer be used."""

TOOLCHAIN = (
    "jax-tt-plugin",
    "0.1.3",
    "10f2fe2f77b3f0d25a68a9fbf53dab713b1edd854f1ab50bf973783c9be9da83",
)
"""Name, version and SHA-256 of the wheel that contains the SFPI compiler (GPL).

ttnn compiles its kernels with it. On a host with a card it is part of ttnn's installation.
"""


class Unavailable(Exception):
    """The simulator doesn't exist or can't be built; the message has the reason and the remedy."""


@dataclass(frozen=True)
class Place:
    """One simulator: a separate folder for each set of pins and each version of Python."""

    root: Path
    python: str
    """3.12 or 3.10."""

    @property
    def folder(self) -> Path:
        """The folder of everything but the builds file."""
        return self.root / f"{pins(self.python)[:12]}-py{self.python.replace('.', '')}"

    @property
    def interpreter(self) -> Path:
        """The Python that has ttnn and the simulator."""
        return self.folder / "venv" / "bin" / "python"

    @property
    def packages(self) -> Path:
        """The site-packages folder of that Python."""
        return self.folder / "venv" / "lib" / f"python{self.python}" / "site-packages"

    @property
    def complete(self) -> Path:
        """The mark that is written last: without it the folder is unfinished, and never used."""
        return self.folder / "complete"

    @property
    def builds(self) -> Path:
        """The builds file for GONOGO_BUILDS."""
        return self.root / "builds.toml"

    def environment(self) -> Mapping[str, str]:
        """Return the variables with which ttnn runs on the simulator.

        The cluster's description makes coordinates those of a card: kernels multicast by them.
        """
        simulator = self.packages / "framework" / "sim" / "wormhole"
        return {
            "TT_METAL_HOME": str(self.folder / "metal"),
            "TT_METAL_RUNTIME_ROOT": str(self.folder / "metal"),
            "TT_METAL_SIMULATOR": str(simulator),
            "TT_METAL_MOCK_CLUSTER_DESC_PATH": str(simulator / "cluster_descriptor.yaml"),
            "TT_METAL_SLOW_DISPATCH_MODE": "1",
            "TT_METAL_DISABLE_SFPLOADMACRO": "1",
            "TT_METAL_CACHE": str(self.folder / "compiled"),
            "TT_METAL_LOGGER_LEVEL": "FATAL",
            "TT_METAL_DISABLE_BACKTRACE": "1",
            "TT_SIM_NOC1_SHADOW": "off",
            "WOLFPINE_PYTHON": str(self.interpreter),
        }


def root() -> Path:
    """Return the cache folder."""
    named = os.environ.get(FOLDER_VARIABLE)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(named).absolute() if named else cache.absolute() / "gonogo" / "wormhole-sim"


def requirements(python: str) -> Path:
    """Return the lock file of the packages for this version of Python."""
    return HERE / f"requirements-py{python.replace('.', '')}.txt"


def pins(python: str) -> str:
    """Return a digest that changes with every pin, and with our mends."""
    texts = (path.read_text("utf-8") for path in (requirements(python), MENDS))
    return hashlib.sha256("\n".join((LAYOUT, python, *TOOLCHAIN, *texts)).encode()).hexdigest()


def find() -> Path:
    """Return the builds file of a simulator that was built with the current pins.

    Raises Unavailable with the remedy.
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

"""The packages of examples/, installed with their real metadata: wheels, unpacked into a folder."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

from gonogo.kernels import registry

EXAMPLES = Path(__file__).parents[2] / "examples"
PACKAGES = ("l2norm", "l2norm_backward", "numpy_executor")


def unpack(folder: Path) -> Path:
    """Install the example packages into a folder; return it."""
    for package in PACKAGES:
        builder = WheelBuilder(str(EXAMPLES / package))
        for wheel in builder.build(directory=str(folder / "wheels"), versions=["standard"]):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(folder / "site")
    return folder / "site"


@contextmanager
def importable(site: Path) -> Iterator[None]:
    """Put the folder on this process's path; afterwards nothing of it is left."""
    sys.path.insert(0, str(site))
    known = set(sys.modules)
    try:
        yield
    finally:
        sys.path.remove(str(site))
        registry.allow_installed(False)
        for kernel in list(registry.loaded()):
            registry.unregister(kernel)
        for name in set(sys.modules) - known:
            if name.startswith(("l2norm", "numpy_executor")):
                del sys.modules[name]

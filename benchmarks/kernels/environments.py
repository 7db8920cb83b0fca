"""Make a virtual environment for each library, in the cache folder, with exact versions.

`make libraries` runs this module. A library that can't be installed here is left out, and one
printed line says why. pip's own settings say where wheels come from.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final


@dataclass(frozen=True)
class Environment:
    """A library: the packages of its environment, and the modules that must be importable.

    The first package names the folder. Its version is the library's version.
    """

    library: str
    packages: tuple[str, ...]
    modules: tuple[str, ...]
    stamp_name: str = ""
    """The name of the stamp where it isn't the library's."""

    @property
    def folder(self) -> Path:
        """The place of the virtual environment; the Makefile knows torch's."""
        version = self.packages[0].partition("==")[2]
        return cache_folder() / f"{self.library}-{version}"

    @property
    def python(self) -> Path:
        """The interpreter."""
        return self.folder / "bin" / "python"

    @property
    def stamp(self) -> Path:
        """A file that exists once the environment is complete."""
        return self.folder / (self.stamp_name or f".gonogo-{self.library}")

    @property
    def is_installed(self) -> bool:
        """Whether the environment is complete and has these versions.

        The stamp holds the packages; an older one of torch is empty.
        """
        if not (self.stamp.exists() and self.python.exists()):
            return False
        text = self.stamp.read_text("utf-8")
        return text == self._stamped or (not text and self.library == "torch")

    @property
    def _stamped(self) -> str:
        return " ".join((*self.packages, *self.modules))

    def complete(self) -> None:
        """Note that the environment is complete."""
        self.stamp.write_text(self._stamped, "utf-8")


NUMPY: Final = "numpy==2.4.6"
ENVIRONMENTS: Final = (
    Environment(
        "torch",
        ("torch==2.13.0", NUMPY, "pydantic==2.14.3", "rfc8785==0.1.4"),
        ("torch", "pydantic", "rfc8785"),  # the executor's tests need more than the programs
        stamp_name=".gonogo-torch-2",
    ),
    Environment(
        "jax",
        ("jax==0.10.2", "jaxlib==0.10.2", "flax==0.12.8", "ml_dtypes==0.6.0", NUMPY),
        ("jax", "flax"),
    ),
    Environment(
        "onnxruntime",
        ("onnxruntime==1.32.0", "onnx==1.23.2", NUMPY),
        ("onnxruntime", "onnx"),
    ),
)
"""The one table of versions. The Makefile names torch's folder."""

INTERPRETERS: Final = ("python3.11", "python3.12", "python3.13", "python3")


def cache_folder() -> Path:
    """Return the folder for everything that outlives a clone."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gonogo"


def environment_of(library: str) -> Environment:
    """Return a library's environment. Raises StopIteration for an unknown one."""
    return next(row for row in ENVIRONMENTS if row.library == library)


def install(environment: Environment) -> str | None:
    """Make the environment; return None, or why the library is left out."""
    if environment.is_installed:
        return None
    problem = "no interpreter here can make virtual environments"
    preferred = os.environ.get("LIBRARIES_PYTHON")
    for python in (*((preferred,) if preferred else ()), *INTERPRETERS):
        if _run([python, "-c", "import ensurepip, venv"]) is not None:
            continue
        shutil.rmtree(environment.folder, ignore_errors=True)
        _run([python, "-m", "venv", str(environment.folder)])
        pip = [str(environment.python), "-m", "pip", "install", "--quiet"]
        pip += ["--disable-pip-version-check", "--only-binary", ":all:", *environment.packages]
        imports = [str(environment.python), "-c", f"import {', '.join(environment.modules)}"]
        failure = _run(pip) or _run(imports)
        if failure is None:
            environment.complete()
            return None
        problem = f"{python}: {failure}"
    shutil.rmtree(environment.folder, ignore_errors=True)
    return problem


def _run(command: Sequence[str]) -> str | None:
    """Run a command; return None, or the line of its output that says what went wrong."""
    try:
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    if ended.returncode == 0:
        return None
    lines = [line for line in ended.stderr.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()] or lines or ["it failed silently"]
    return errors[-1][:200]


def main(words: list[str] | None = None) -> int:
    """Install every library, or those that are named; return 2 where there is none at all."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.kernels.environments", description=__doc__
    )
    names = [row.library for row in ENVIRONMENTS]
    parser.add_argument("libraries", nargs="*", help=f"some of {', '.join(names)}")
    chosen = parser.parse_args(words).libraries or names
    if unknown := [name for name in chosen if name not in names]:
        parser.error(f"there is no library {unknown[0]!r}; allowed: {', '.join(names)}")
    count = 0
    for environment in ENVIRONMENTS:
        if environment.library not in chosen:
            continue
        is_new = not environment.is_installed
        problem = install(environment)
        if problem is not None:
            print(f"left out {environment.library}: {problem}", flush=True)
            continue
        count += 1
        state = "installed" if is_new else "ready"
        print(f"{state}: {' '.join(environment.packages)} in {environment.folder}", flush=True)
    return 0 if count else 2


if __name__ == "__main__":
    sys.exit(main())

"""An interpreter with torch for tests of the torch executor, and the builds file that names it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from checkout import PYTHONPATH, ROOT

VARIABLE = "GONOGO_TEST_TORCH_PYTHON"
CHILD = ROOT / "workers" / "gonogo_workers" / "executors" / "child"


@cache
def torch_python() -> str:
    """The interpreter that GONOGO_TEST_TORCH_PYTHON names, else ours when it has torch. Skips the
    test where there is none."""
    named = os.environ.get(VARIABLE) or None
    if named is None:
        if importlib.util.find_spec("torch") is None:
            pytest.skip(
                f"torch: no interpreter has it; `make torch` makes one, {VARIABLE} names it"
            )
        return sys.executable
    imported = subprocess.run([named, "-c", "import numpy, torch"], capture_output=True, text=True)
    if imported.returncode:
        pytest.skip(
            f"torch: {named}, which {VARIABLE} names, can't import it: {imported.stderr[-300:]}"
        )
    return named


def builds_file(folder: Path, **more: str) -> str:
    """A builds file for the torch executor; `more` are texts of further tables by build name. Its
    path."""
    path = folder / "builds.toml"
    tables = [f'[executors.torch]\npython = "{torch_python()}"\n']
    tables += [f'[builds."{name}"]\nexecutor = "torch"\n{text}\n' for name, text in more.items()]
    path.write_text("\n".join(tables))
    return str(path)


def run_in_torch(code: str, *, seconds: float = 110) -> str:
    """Run Python code in that interpreter, with GoNoGo's modules and the child's executors
    importable; its stdout."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("GONOGO_")
    }
    environment["PYTHONPATH"] = f"{PYTHONPATH}{os.pathsep}{CHILD}"
    done = subprocess.run(
        [torch_python(), "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    return done.stdout

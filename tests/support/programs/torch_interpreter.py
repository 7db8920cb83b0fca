"""An interpreter with torch for tests of the torch executor, and the builds file that names it."""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from checkout import PYTHONPATH, ROOT
from patience import WAIT_S

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
    # found, not imported, which takes more than a second; what can't be imported fails the tests
    find = (
        "import sys; from importlib.util import find_spec; "
        "sys.exit(None in [find_spec(name) for name in ('numpy', 'torch')])"
    )
    tried = subprocess.run([named, "-c", find], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"torch: {named}, which {VARIABLE} names, has none: {tried.stderr[-300:]}")
    return named


def builds_file(folder: Path, **more: str) -> str:
    """A builds file for the torch executor; `more` are texts of further tables by build name. Its
    path."""
    path = folder / "builds.toml"
    tables = [f'[executors.torch]\npython = "{torch_python()}"\n']
    tables += [f'[builds."{name}"]\nexecutor = "torch"\n{text}\n' for name, text in more.items()]
    path.write_text("\n".join(tables))
    return str(path)


SERVER = """
import contextlib, io, json, os, sys, traceback
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
environment = dict(os.environ)
for line in sys.stdin:
    printed, trouble = io.StringIO(), None
    try:
        with contextlib.redirect_stdout(printed):
            exec(json.loads(line), {"__name__": "__main__"})
    except BaseException:
        trouble = traceback.format_exc()
    os.environ.clear()
    os.environ.update(environment)
    print(json.dumps([printed.getvalue(), trouble]), file=answers, flush=True)
os._exit(0)  # torch takes half a second to leave
"""


@cache
def _server() -> subprocess.Popen[str]:
    """The interpreter that runs one program after another: a start takes more than a second."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("GONOGO_")
    }
    environment["PYTHONPATH"] = f"{PYTHONPATH}{os.pathsep}{CHILD}"
    server = subprocess.Popen(
        [torch_python(), "-c", SERVER],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def close() -> None:
        server.communicate(timeout=WAIT_S)

    atexit.register(close)
    return server


def run_in_torch(code: str) -> str:
    """Run Python code in that interpreter, with GoNoGo's modules and the child's executors
    importable; its stdout. The environment is the same for each."""
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    print(json.dumps(code), file=server.stdin, flush=True)
    line = server.stdout.readline()
    assert line, f"the interpreter ended with {server.wait(10)}"
    printed, trouble = json.loads(line)
    assert trouble is None, f"{printed[-2000:]}\n{trouble[-3000:]}"
    return str(printed)

"""The process that runs pytest, in the build's interpreter: `python pytest_session.py COPY TRACES pytest's arguments...`.

COPY is a folder with a copy of gonogo's plug-in, used where the interpreter has no gonogo that speaks like it. On SIGUSR1 the stacks
of all threads are written to the file TRACES, even while native code hangs: so a hang has a place. Standard library only.
"""

from __future__ import annotations

import faulthandler
import importlib.util
import os
import signal
import sys
from pathlib import Path

PLUGIN = "gonogo.pytest_plugin"
FORMAT_LINE = "FORMAT = 1\n"
"""Stands in a plug-in whose lines our executor reads."""


def usable() -> bool:
    """Whether the gonogo that this interpreter finds (installed, or the repository itself) has our plug-in. Doesn't import the plug-in:
    pytest rewrites its assertions while importing it."""
    try:
        found = importlib.util.find_spec(PLUGIN)
        return found is not None and found.origin is not None and FORMAT_LINE in Path(found.origin).read_text("utf-8")
    except Exception:  # whatever a stranger's package named gonogo does when it is imported
        return False


def main() -> None:
    """Never returns."""
    copy, traces, *arguments = sys.argv[1:]
    own = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [os.getcwd(), *(entry for entry in sys.path if os.path.abspath(entry or ".") != own)]  # as `python -m pytest`
    faulthandler.register(signal.SIGUSR1, file=os.open(traces, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC), all_threads=True)
    if not usable():
        for name in [name for name in sys.modules if name.partition(".")[0] == "gonogo"]:
            del sys.modules[name]
        sys.path.insert(0, copy)
        importlib.invalidate_caches()
    import pytest

    sys.exit(pytest.main(["-p", PLUGIN, *arguments]))


if __name__ == "__main__":
    main()

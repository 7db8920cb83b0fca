"""The process that runs pytest, in the build's interpreter.

`python pytest_session.py COPY TRACES pytest's arguments...`: COPY is a folder with a copy of
gonogo's plug-in, used where the interpreter has no compatible gonogo. On SIGUSR1 the stacks of all
threads are written to the file TRACES, even while native code hangs: so a hang has a place.
Standard library only.
"""

from __future__ import annotations

import faulthandler
import importlib.util
import os
import signal
import sys
from pathlib import Path

PLUGIN = "gonogo.pytest_plugin.plugin"
FORMAT_LINE = "FORMAT = 1\n"
"""A line in every plug-in whose output our executor can read."""


def usable() -> bool:
    """Return whether the interpreter's gonogo has a plug-in that our executor can read.

    It may be installed, or the repository itself; another package of that name may shadow it.
    It isn't imported: pytest rewrites the plug-in's assertions while importing it.
    """
    try:
        spec = importlib.util.find_spec("gonogo")
        if spec is None or spec.origin is None:
            return False
        plugin = Path(spec.origin).parent / "pytest_plugin" / "plugin.py"
        return FORMAT_LINE in plugin.read_text("utf-8")
    except Exception:  # an import may run any code of another package
        return False


def main() -> None:
    """Run pytest and exit with its status."""
    copy, traces, *arguments = sys.argv[1:]
    script_folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [
        os.getcwd(),
        *(entry for entry in sys.path if os.path.abspath(entry or ".") != script_folder),
    ]  # as `python -m pytest`
    faulthandler.register(
        signal.SIGUSR1,
        file=os.open(traces, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC),
        all_threads=True,
    )
    if not usable():
        for name in [name for name in sys.modules if name.partition(".")[0] == "gonogo"]:
            del sys.modules[name]
        sys.path.insert(0, copy)
        importlib.invalidate_caches()
    import pytest

    sys.exit(pytest.main(["-p", PLUGIN, *arguments]))


if __name__ == "__main__":
    main()

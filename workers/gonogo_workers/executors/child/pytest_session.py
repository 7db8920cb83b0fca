"""The process that runs pytest, in the build's interpreter: `python pytest_session.py COPY TRACES
pytest's arguments...`.

COPY is a folder with a copy of gonogo's plug-in, used where the interpreter has no gonogo that
speaks like it. On SIGUSR1 the stacks of all threads are written to the file TRACES, even while
native code hangs: so a hang has a place. Standard library only.
"""

from __future__ import annotations

import faulthandler
import importlib.util
import os
import signal
import sys
from pathlib import Path

PACKAGES = ("gonogo", "gonogo_pytest")
PLUGIN = "gonogo_pytest.plugin"
FORMAT_LINE = "FORMAT = 1\n"
"""Stands in a plug-in whose lines our executor reads."""


def usable() -> bool:
    """Whether the plug-in that this interpreter finds (installed, or the repository itself) is
    ours, and so is the gonogo beside it: a stranger's package of that name may shadow it. Imports
    neither: pytest rewrites the plug-in's assertions while importing it.
    """
    try:
        found, domain = importlib.util.find_spec(PLUGIN), importlib.util.find_spec("gonogo")
        if found is None or found.origin is None or domain is None or domain.origin is None:
            return False
        plugin = Path(found.origin)
        return plugin.parents[1] == Path(domain.origin).parents[
            1
        ] and FORMAT_LINE in plugin.read_text("utf-8")
    except Exception:  # whatever a stranger's package does when it is imported
        return False


def main() -> None:
    """Never returns."""
    copy, traces, *arguments = sys.argv[1:]
    own = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [
        os.getcwd(),
        *(entry for entry in sys.path if os.path.abspath(entry or ".") != own),
    ]  # as `python -m pytest`
    faulthandler.register(
        signal.SIGUSR1,
        file=os.open(traces, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC),
        all_threads=True,
    )
    if not usable():
        for name in [name for name in sys.modules if name.partition(".")[0] in PACKAGES]:
            del sys.modules[name]
        sys.path.insert(0, copy)
        importlib.invalidate_caches()
    import pytest

    sys.exit(pytest.main(["-p", PLUGIN, *arguments]))


if __name__ == "__main__":
    main()

"""Store arrays on disk for the worker that runs these tests, which judges them later.

docs/gtest.md has the same for C++.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path

from gonogo.public import recorded
from gonogo.public.recorded import Arrays

DUMP_VARIABLE = "GONOGO_DUMP_DIR"
"""The environment variable with the folder for arrays; a worker that runs the test sets it."""
MANIFEST = "manifest.json"
_numbers = itertools.count()


def under_worker() -> bool:
    """Return whether a GoNoGo worker runs these tests; then it receives their reports itself."""
    return bool(os.environ.get(DUMP_VARIABLE))


def take() -> Callable[[], None]:
    """Store all arrays that this process compares in the worker's folder from now on.

    The plug-in calls it. A new process that a test starts must call it (a forked one inherits it).
    Returns a function that stops it. Raises KeyError if no worker runs the test.
    """
    folder = Path(os.environ[DUMP_VARIABLE])
    return recorded.take(lambda arrays: store(folder, arrays))


def store(folder: Path, arrays: Arrays) -> None:
    """Store the arrays in a folder of their own.

    The folder is renamed when it is complete, so a crash in between leaves nothing that looks
    complete.
    """
    import numpy as np

    identity = {"test": current_test(), "name": arrays.name, "kernel": arrays.fields["kernel"]}
    place = folder / f"{os.getpid()}-{next(_numbers)}"
    unfinished = folder / f".{place.name}"
    unfinished.mkdir(parents=True)
    files: dict[str, dict[str, str]] = {"tensors": {}, "raw": {}}
    for kind, these in (("tensors", arrays.tensors), ("raw", arrays.raw)):
        for tensor, array in these.items():
            files[kind][tensor] = f"{kind}-{tensor}.npy"
            np.save(unfinished / files[kind][tensor], array, allow_pickle=False)
    (unfinished / MANIFEST).write_text(
        json.dumps({**identity, "fields": arrays.fields, "arithmetic": arrays.arithmetic, **files}),
        "utf-8",
    )
    unfinished.rename(place)


def current_test() -> str | None:
    """Return the node id of the running test, from the environment variable that pytest sets.

    Processes that the test starts know it, too.
    """
    return os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0] or None

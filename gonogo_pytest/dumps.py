"""Arrays on disk for the worker that runs these tests: it judges them when the test has gone on
(docs/gtest.md has the same for C++).
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
"""Names the folder into which arrays are handed over; a worker that runs the test sets it."""
MANIFEST = "manifest.json"
_numbers = itertools.count()


def under_worker() -> bool:
    """Return whether a GoNoGo worker runs these tests: it hears of them by itself."""
    return bool(os.environ.get(DUMP_VARIABLE))


def take() -> Callable[[], None]:
    """From now on arrays that this process compares are stored in the worker's folder; returns what
    ends it.

    The plug-in says it. A process that a test starts anew (a forked one inherits it) says it by
    itself. Raises KeyError where no worker is.
    """
    folder = Path(os.environ[DUMP_VARIABLE])
    return recorded.take(lambda arrays: store(folder, arrays))


def store(folder: Path, arrays: Arrays) -> None:
    """One folder per comparison, renamed into place when it is whole: a crash in between leaves
    nothing that looks like one.
    """
    import numpy as np

    told = {"test": current_test(), "name": arrays.name, "kernel": arrays.fields["kernel"]}
    place = folder / f"{os.getpid()}-{next(_numbers)}"
    unfinished = folder / f".{place.name}"
    unfinished.mkdir(parents=True)
    files: dict[str, dict[str, str]] = {"tensors": {}, "raw": {}}
    for kind, these in (("tensors", arrays.tensors), ("raw", arrays.raw)):
        for tensor, array in these.items():
            files[kind][tensor] = f"{kind}-{tensor}.npy"
            np.save(unfinished / files[kind][tensor], array, allow_pickle=False)
    (unfinished / MANIFEST).write_text(
        json.dumps({**told, "fields": arrays.fields, "arithmetic": arrays.arithmetic, **files}),
        "utf-8",
    )
    unfinished.rename(place)


def current_test() -> str | None:
    """Return the node id of the test that runs, as pytest puts it into the environment: processes that the
    test starts know it, too.
    """
    return os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0] or None

"""Calls that begin in the same moment, as those of several processes may."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from patience import WAIT_S


def at_once(*calls: Callable[[], object]) -> None:
    """Make each call in a thread of its own; raise what one of them raises."""
    barrier = threading.Barrier(len(calls))

    def begin(call: Callable[[], object]) -> object:
        barrier.wait(WAIT_S)
        return call()

    with ThreadPoolExecutor(len(calls)) as threads:
        for done in [threads.submit(begin, call) for call in calls]:
            done.result(WAIT_S)

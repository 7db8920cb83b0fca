"""How long the tests wait, and how long a piece of work may take, on this machine under its load:
the one owner of their limits."""

from __future__ import annotations

import os
import time

QUICK_S = 0.02
"""The seconds that `_work` takes on an idle machine."""


def _work() -> float:
    began = time.perf_counter()
    sum(number * number for number in range(250_000))
    return time.perf_counter() - began


def _slowness() -> int:
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    return min(10, max(1, round(max(load, *(_work() / QUICK_S for _ in range(5))))))


SLOWNESS = _slowness()
"""How many times as long as on an idle machine work takes here, from 1 to 10, measured when the
process begins. Each process of a run has its own: no test may be named by it."""

WAIT_S = 60.0 * SLOWNESS
"""The limit of a wait for what must come, and of a program that must end. It is generous, as such a
wait ends at once when it may."""
WAIT_MS = 1000 * WAIT_S
"""The same, as browsers count."""


def scaled(seconds: float) -> float:
    """Return a limit of the product that a test sets, or the most that a piece of work may take,
    from the seconds for an idle machine."""
    return float(seconds * SLOWNESS)

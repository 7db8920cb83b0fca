"""After how many seconds a seed is a hang: the limit follows what a seed takes."""

from __future__ import annotations

from gonogo.spec.executors import EXECUTORS

FACTOR = 20.0
"""Times the expected seconds of a seed: a device that others share is rarely 10 times slower."""
LEAST_S = 30.0
"""No limit is shorter: a machine that swaps, or reads from the network, stands still this long."""
FIRST_CALL_S = 120.0
"""In addition for the first seed of a child, whose call may compile the kernel."""


def of(seed_s: float | None, most_s: float) -> tuple[float, float]:
    """Return the limits of a seed, and of the first seed of a fresh child; at most `most_s` each.

    seed_s: what a seed is expected to take; None if nobody knows, which leaves it at `most_s`.
    """
    if seed_s is None:
        return most_s, most_s
    limit = max(LEAST_S, FACTOR * seed_s)
    return min(limit, most_s), min(limit + FIRST_CALL_S, most_s)


def is_guessed_well(executor: str) -> bool:
    """Return whether a seed's seconds are guessed well enough from its size for a limit.

    Own executors' kernels on a CPU are. Nobody can guess tests that exist already, the executors
    of others, and chips, since a simulated one takes minutes.
    """
    row = EXECUTORS.get(executor)
    return row is not None and not row.on_chips


def guess_s(executor: str, elements: int) -> float | None:
    """Return the seconds that a seed of this size should take; None where nobody can guess."""
    row = EXECUTORS[executor] if is_guessed_well(executor) else None
    return None if row is None else row.seed_s + row.element_s * elements

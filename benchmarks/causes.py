"""Causes of flickering tests whose truth is known: how often attribution names the right one.

A part of `python -m benchmarks.flakiness`. Ten kernels in the service's usual dress: nights of a
few seeds on two devices, and builds in order. No constant was chosen on them: out-of-sample.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.intervals import clopper_pearson
from gonogo.flakiness.attribution import Cause, attribute
from gonogo.flakiness.rates import Outcome
from gonogo.flakiness.samples import Sample

NIGHTS, SEEDS = 24, 6
DEVICES = ("lab-1/wormhole:0", "lab-1/wormhole:1")
WRONG = 0.01
"""The share of histories that may be blamed on a wrong cause: `significance` is a tenth of it."""

Rng = np.random.Generator
BITS = "usual"


class Run(NamedTuple):
    """When and where a kernel runs."""

    night: int
    seed: int
    device: int
    position: int


class Result(NamedTuple):
    """The bits that it gives, and the outcome."""

    digest: str
    outcome: Outcome


class Kernel(NamedTuple):
    """A kernel, and the causes that are right for it."""

    name: str
    run: Callable[[Rng, Run], Result]
    causes: frozenset[Cause]
    seeded: bool = True
    """False: a suite of its own, whose seeds aren't controlled."""


def history(rng: Rng, kernel: Kernel) -> Iterator[Sample]:
    """Draw the nights of a kernel; every third is a new build, and nights change the device."""
    for night in range(NIGHTS):
        device = int(rng.integers(2))
        for position, seed in enumerate(rng.permutation(SEEDS).tolist()):
            result = kernel.run(rng, Run(night, seed, device, position))
            yield Sample(
                seed if kernel.seeded else None,
                0,
                DEVICES[device],
                f"b{night // 3}",
                "isolated",
                f"night-{night}",
                position,
                result.digest if kernel.seeded else None,
                result.outcome,
            )


def _passed(digest: str = BITS) -> Result:
    return Result(digest, Outcome.passed)


def _failed(digest: str) -> Result:
    return Result(digest, Outcome.failed)


def _rare(rng: Rng, run: Run) -> Result:
    return _failed("race") if rng.random() < 0.02 else _passed()


def _on_a_device(_rng: Rng, run: Run) -> Result:
    return _failed("device") if run.device else _passed()


def _temperature(rng: Rng, run: Run) -> Result:
    """Fail more often in the middle of the history, when it is hot."""
    heat = 0.3 * np.sin(np.pi * run.night / NIGHTS) ** 2
    return _failed(f"hot-{rng.integers(9)}") if rng.random() < heat else _passed()


def _seeds(_rng: Rng, run: Run) -> Result:
    return _failed("seed") if run.seed in (1, 4) else _passed()


def _grows(rng: Rng, run: Run) -> Result:
    """Flake in the last third."""
    return _failed("race") if run.night >= 16 and rng.random() < 0.3 else _passed()


def _bursts(rng: Rng, run: Run) -> Result:
    """Crash in whole nights."""
    return Result(BITS, Outcome.infrastructure) if run.night in (5, 6, 17) else _passed()


def _two_orders(rng: Rng, run: Run) -> Result:
    """Sum in one of two orders, one of which is outside the tolerance on one seed."""
    order = "left" if rng.random() < 0.5 else "right"
    return _failed(order) if run.seed == 2 and order == "left" else _passed(order)


def _warm_up(_rng: Rng, run: Run) -> Result:
    return _failed("cold") if run.position == 0 else _passed()


def _two_causes(rng: Rng, run: Run) -> Result:
    """Fail on one device always for a seed, and anywhere now and then."""
    if run.device and run.seed == 3:
        return _failed("device")
    return _failed("race") if rng.random() < 0.1 else _passed()


def _near(rng: Rng, _run: Run) -> Result:
    """Fail by chance: the seeds aren't controlled, so nothing tells why."""
    return _failed(BITS) if rng.random() < 0.15 else _passed()


NONDETERMINISTIC = frozenset({Cause.nondeterministic})
KERNELS = (
    Kernel("a very rare race", _rare, NONDETERMINISTIC),
    Kernel("one device of two", _on_a_device, frozenset({Cause.device_dependent})),
    Kernel("temperature", _temperature, NONDETERMINISTIC),
    Kernel("two of six seeds", _seeds, frozenset({Cause.seed_sensitive})),
    Kernel("a race from one build on", _grows, NONDETERMINISTIC),
    Kernel("crashes in bursts", _bursts, frozenset({Cause.infrastructure})),
    Kernel("two orders of a sum", _two_orders, NONDETERMINISTIC),
    Kernel("the first run warms up", _warm_up, frozenset({Cause.context_dependent})),
    Kernel(
        "a device and a race",
        _two_causes,
        frozenset({Cause.nondeterministic, Cause.device_dependent}),
    ),
    Kernel("near its tolerance, any seed", _near, frozenset({Cause.unknown}), seeded=False),
)
SILENT = frozenset({Cause.unknown, Cause.stable})
"""Answers that blame nothing."""


def causes(rng: Rng, count: int, console: Console) -> bool:
    """Count the right causes, the silent answers and the wrong ones."""
    table = Table(
        title=(
            f"out-of-sample: causes named in {count} histories of {NIGHTS} nights of {SEEDS} seeds,"
            " with 95% intervals"
        ),
        title_justify="left",
    )
    for column in ("kernel", "right", "nothing named", f"wrong (at most {WRONG:g})", "which"):
        table.add_column(column, justify="left" if column in ("kernel", "which") else "right")
    good = True
    for kernel in KERNELS:
        named = Counter(attribute(history(rng, kernel)).cause for _ in range(count))
        right = sum(named[cause] for cause in kernel.causes)
        silent = sum(named[cause] for cause in SILENT - kernel.causes)
        wrong = count - right - silent
        low, high = clopper_pearson(right, count)
        least, most = clopper_pearson(wrong, count)
        good &= least <= WRONG
        table.add_row(
            kernel.name,
            f"{right / count:.3f} [{low:.3f}, {high:.3f}]",
            f"{silent / count:.3f}",
            f"{wrong / count:.3f} [{least:.3f}, {most:.3f}]",
            ", ".join(sorted(cause for cause in named if cause not in kernel.causes | SILENT)),
        )
    console.print(table)
    return good

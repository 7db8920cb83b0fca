"""Jobs, rows and a simulated device worker for the tests of storage and of the job flow: those of
the benchmark."""

from __future__ import annotations

from benchmarks.simulated import (
    DEVICE,
    HOST,
    KEY,
    QUEUE,
    SimulatedWorker,
    empty_row,
    joined,
    new_job,
    output,
    row,
)

__all__ = [
    "DEVICE",
    "HOST",
    "KEY",
    "QUEUE",
    "SimulatedWorker",
    "empty_row",
    "joined",
    "new_job",
    "output",
    "row",
]

"""A test of a comparison: its results on both sides, and its class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from gonogo.flakiness.classes import Classification, RunSummary
from gonogo.flakiness.device_times import TimeChange
from gonogo.flakiness.masking import BuildChange
from gonogo.judging.flip_summary import FlipsSummary
from gonogo_service.compare.sides import Place


@dataclass(frozen=True)
class BuildPair:
    """The newest job of a test that ran head's build against base's on equal seeds.

    Such a job is in no side's counts, since its verdict says something about two builds.
    """

    job: str
    build: str
    reference: str
    flips: tuple[FlipsSummary, ...]


class Compared(NamedTuple):
    """One test of a comparison, of which there may be 20,000."""

    place: Place
    name: str
    """Its name in its suite, else kernel and shape; for a selection, the test within it."""
    workload_key: str
    kernel: str
    canonical: Mapping[str, Any]
    classification: Classification
    base: RunSummary | None
    head: RunSummary | None
    pair: BuildPair | None = None
    """Head's build against base's on equal seeds, if a job compared them."""
    check: str | None = None
    """The `gonogo check` line that runs it again on head's build; `with_checks` reads it."""

    @property
    def change(self) -> BuildChange | None:
        """Return the comparison of the errors; None where the seeds of a side weren't read."""
        return self.classification.change

    @property
    def time(self) -> TimeChange | None:
        """Return head's seconds a seed on the device over base's, where both have enough."""
        return self.classification.time

    @property
    def faster(self) -> str:
        """Return the seconds in one phrase where head is faster, else ""; a finding says slower."""
        return self.time.words if self.time and self.time.faster else ""

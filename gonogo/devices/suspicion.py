"""Suspect the device, not the tests, if most unrelated tests fail on it and pass on others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

MAX_FAILING_SHARE: Final = 0.8
"""4-flakiness: more than 80% of unrelated tests on a device failing means the device."""
MIN_TESTS: Final = 5
"""Fewer unrelated tests could fail together by chance: with a false-alarm rate of .2 each, 5 of
5 do in 3e-4 of the cases."""
ELSEWHERE: Final = 0.5
"""A test counts as failing on a device if this share of its seeds fails there, and as passing
elsewhere if fewer fail."""


@dataclass(frozen=True)
class WorkloadRuns:
    """The runs of a workload with one build on a device, and those that did not pass.

    Hangs, crashes and errors count as failures.
    """

    device: str
    workload: str
    build: str
    runs: int
    failures: int


@dataclass(frozen=True)
class FailingTest:
    """A test that fails on the device: (failures, runs) here and elsewhere."""

    workload: str
    build: str
    here: tuple[int, int]
    elsewhere: tuple[int, int]


@dataclass(frozen=True)
class Suspicion:
    """A device on which unrelated tests fail that pass on others."""

    device: str
    failing: int
    tests: int
    """Unrelated tests that ran on it, and passed on another device with the same build."""
    examples: tuple[FailingTest, ...] = ()
    most: float = MAX_FAILING_SHARE
    """The share of failing tests above which a device is suspect"""
    least_tests: int = MIN_TESTS

    @property
    def words(self) -> str:
        """The suspicion in a phrase."""
        return (
            f"{self.failing} of {self.tests} unrelated tests fail on this device and pass on others"
        )


def suspects(entries: Iterable[WorkloadRuns]) -> list[Suspicion]:
    """Return the devices to suspect, by name.

    Only a test that passes on another device with the same build says anything about a device: if a
    test fails everywhere, the test or the build is at fault. Tests are unrelated if their workloads
    differ; where one workload ran with several builds, the majority counts.
    """
    by_test: dict[tuple[str, str], dict[str, WorkloadRuns]] = defaultdict(dict)
    for entry in entries:
        if entry.runs > 0:
            by_test[(entry.workload, entry.build)][entry.device] = entry
    votes: dict[str, dict[str, list[tuple[bool, FailingTest]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for (workload, build), places in by_test.items():
        for device, here in places.items():
            others = [other for name, other in places.items() if name != device]
            runs = sum(other.runs for other in others)
            failures = sum(other.failures for other in others)
            if runs and failures < ELSEWHERE * runs:
                fails = here.failures > ELSEWHERE * here.runs
                counts = (here.failures, here.runs), (failures, runs)
                votes[device][workload].append((fails, FailingTest(workload, build, *counts)))
    suspicions = []
    for device, workloads in sorted(votes.items()):
        failing = {
            workload: sum(fails for fails, _ in cast) * 2 > len(cast)
            for workload, cast in workloads.items()
        }
        bad = [workload for workload, fails in failing.items() if fails]
        if len(workloads) >= MIN_TESTS and len(bad) > MAX_FAILING_SHARE * len(workloads):
            examples = tuple(
                example
                for workload in sorted(bad)[:10]
                for fails, example in workloads[workload][:1]
                if fails
            )
            suspicions.append(Suspicion(device, len(bad), len(workloads), examples))
    return suspicions

"""Is it the tests, or the device?

When most unrelated tests fail on one device and not on the others, the device is suspected.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

MOST: Final = 0.8
"""4-flakiness: more than 80% of unrelated tests on a device failing means the device."""
LEAST_TESTS: Final = 5
"""Fewer unrelated tests could fail together by chance: with a false-alarm rate of .2 each, 5 of 5
do in 3e-4 of the cases."""
ELSEWHERE: Final = 0.5
"""A test counts as failing on a device, or as well elsewhere, by the majority of its seeds
there."""


@dataclass(frozen=True)
class Tried:
    """How often a test with one build was run on a device, and how often it did not pass (hangs,
    crashes and errors are counted).
    """

    device: str
    workload: str
    build: str
    runs: int
    failures: int


@dataclass(frozen=True)
class Suspicion:
    """A device on which tests fail that pass on others."""

    device: str
    failing: int
    tests: int
    """Unrelated tests that were run on it, and well on another device, with the same build."""
    examples: tuple[dict[str, Any], ...]

    @property
    def words(self) -> str:
        """One sentence."""
        return (
            f"{self.failing} of {self.tests} unrelated tests fail on this device and pass on others"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the evidence in plain JSON."""
        return {
            "failing": self.failing,
            "tests": self.tests,
            "examples": list(self.examples),
            "most": MOST,
            "least_tests": LEAST_TESTS,
        }


def suspects(tried: Iterable[Tried]) -> list[Suspicion]:
    """Return the devices to suspect, by name.

    Only a test that passes on another device with the same build says anything about a device: one
    that fails everywhere is the test's or the build's fault. Tests are unrelated when their
    workloads differ; of one workload with several builds, the majority counts.
    """
    by_test: dict[tuple[str, str], dict[str, Tried]] = defaultdict(dict)
    for each in tried:
        if each.runs > 0:
            by_test[(each.workload, each.build)][each.device] = each
    votes: dict[str, dict[str, list[tuple[bool, dict[str, Any]]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for (workload, build), places in by_test.items():
        for device, here in places.items():
            others = [other for name, other in places.items() if name != device]
            runs, failures = (
                sum(other.runs for other in others),
                sum(other.failures for other in others),
            )
            if runs and failures < ELSEWHERE * runs:
                fails = here.failures > ELSEWHERE * here.runs
                example = {
                    "workload": workload,
                    "build": build,
                    "here": [here.failures, here.runs],
                    "elsewhere": [failures, runs],
                }
                votes[device][workload].append((fails, example))
    found = []
    for device, workloads in sorted(votes.items()):
        failing = {
            workload: sum(fails for fails, _ in cast) * 2 > len(cast)
            for workload, cast in workloads.items()
        }
        bad = [workload for workload, fails in failing.items() if fails]
        if len(workloads) >= LEAST_TESTS and len(bad) > MOST * len(workloads):
            examples = tuple(
                example
                for workload in sorted(bad)[:10]
                for fails, example in workloads[workload][:1]
                if fails
            )
            found.append(Suspicion(device, len(bad), len(workloads), examples))
    return found

"""What attribution reads: one run of one test each, and the tables of them by configuration."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gonogo.flakiness.policy import POLICY, FlakinessPolicy
from gonogo.flakiness.rates import Outcome, Rate, fisher, greater, rate_of

ISOLATED = "isolated"


class Sample(NamedTuple):
    """One run. `seed` None: not controlled (a gtest iteration), so that its digest says nothing.
    `digest`: of all outputs, in one text.
    """

    seed: int | None
    repeat: int
    device: str
    build: str
    context: str
    host_run: str
    position: int
    digest: str | None
    outcome: Outcome

    @property
    def fresh(self) -> bool:
        """Whether nothing ran before it in its process."""
        return self.position == 0


@dataclass(frozen=True)
class Configuration:
    """A row of the table of a factor: how often the test failed there, against the first row
    (isolated, or all others).
    """

    name: str
    rate: Rate
    runs: int
    """Child processes that the samples came from."""
    p: float | None
    """Fisher's exact test, two-sided, before Bonferroni; None for the row that the others are
    compared with."""
    higher: float | None
    """Posterior probability that it fails more often than the row of comparison."""
    repeated: int = 0
    """Runs that the rate leaves out, since they repeat another of the row bit for bit."""

    def to_json(self) -> dict[str, Any]:
        """In plain JSON types, the pass rate beside the failure rate."""
        known = self.rate.low is not None and self.rate.high is not None
        passed = self.rate.runs - self.rate.failures
        return {
            "name": self.name,
            "runs": self.rate.runs,
            "passed": passed,
            "failed": self.rate.failures,
            "host_runs": self.runs,
            "pass_rate": passed / self.rate.runs if self.rate.runs else None,
            "pass_low": 1 - self.rate.high if known and self.rate.high is not None else None,
            "pass_high": 1 - self.rate.low if known and self.rate.low is not None else None,
            "p": self.p,
            "higher": self.higher,
            "repeated": self.repeated,
        }


def unsteady(samples: Iterable[Sample]) -> frozenset[str]:
    """The builds that are known to be nondeterministic: a seed gave differing digests in equal
    conditions.
    """
    given: dict[Hashable, str] = {}
    found = set()
    for each in samples:
        if each.seed is not None and each.digest is not None:
            place = (each.build, each.seed, each.device, each.context, each.fresh)
            if given.setdefault(place, each.digest) != each.digest:
                found.add(each.build)
    return frozenset(found)


def once(
    samples: Sequence[Sample],
    numbers: Sequence[float | None] | None = None,
    varying: frozenset[str] | None = None,
) -> list[int]:
    """The places of the samples that tell something new of other seeds; the others repeat what a
    seed gave before.

    A kernel that gives a seed's bits again, in whatever job or build, gives no new sample: four
    seeds of thirty nights are four. Not so on builds that are `unsteady` (varying: known already):
    there each run is a new trial, also one that happens to repeat the bits. Samples without a
    controlled seed or a digest are all kept. numbers: a figure of each sample; the same figure of
    the same seed by another build is no new one either, whatever the bits.
    """
    varying = unsteady(samples) if varying is None else varying
    seen: set[Hashable] = set()
    kept = []
    for place, each in enumerate(samples):
        if each.seed is not None and each.digest is not None and each.build not in varying:
            keys: list[Hashable] = [(each.seed, each.digest, each.outcome)]
            if numbers is not None and numbers[place] is not None:
                keys.append((each.seed, numbers[place], each.outcome))
            if not seen.isdisjoint(keys):
                continue
            seen.update(keys)
        kept.append(place)
    return kept


def contexts(
    samples: Iterable[Sample], policy: FlakinessPolicy = POLICY
) -> tuple[Configuration, ...]:
    """Pass rates per context, the isolated one first and the others against it: the table of a bug
    report.

    Isolated means that nothing ran before: a sample of the isolated context behind other seeds in
    the same process gets the row `isolated, not first`. Without isolated samples every row is
    compared with all the others together.
    """
    return table(samples, _place, ISOLATED, policy)


def devices(
    samples: Iterable[Sample], policy: FlakinessPolicy = POLICY
) -> tuple[Configuration, ...]:
    """Pass rates per device, each against all others together."""
    return table(samples, lambda each: each.device, None, policy)


def _place(sample: Sample) -> str:
    return (
        f"{ISOLATED}, not first"
        if sample.context == ISOLATED and not sample.fresh
        else sample.context
    )


def table(
    samples: Iterable[Sample],
    key: Callable[[Sample], str],
    first: str | None,
    policy: FlakinessPolicy,
) -> tuple[Configuration, ...]:
    """Rows by `key`; compared with the row `first` where it exists, else with the sum of the other
    rows.

    Within a row, and within that sum, each sample counts `once`: else one seed that always fails,
    run every night on one device, or run again on each of the others, would be a matter of devices.
    """
    again: dict[str, int] = {}
    hosts: dict[str, set[str]] = {}
    everything = list(samples)
    varying = unsteady(everything)
    rows_of: dict[str, list[Sample]] = defaultdict(list)
    for sample in everything:
        if sample.outcome in (Outcome.passed, Outcome.failed):
            rows_of[key(sample)].append(sample)
    for name, row in rows_of.items():
        rows_of[name] = [row[place] for place in once(row, varying=varying)]
        again[name] = len(row) - len(rows_of[name])
        hosts[name] = {sample.host_run for sample in row}
    names = sorted(rows_of, key=lambda name: (name != first, name))
    rows = []
    for name in names:
        own, _ = rate_of((sample.outcome for sample in rows_of[name]), policy)
        p = higher = None
        if len(names) > 1 and name != first:
            against = [first] if first in rows_of else [other for other in names if other != name]
            others = [sample for each in against if each for sample in rows_of[each]]
            other, _ = rate_of(
                (others[place].outcome for place in once(others, varying=varying)), policy
            )
            p = fisher(own.failures, own.runs, other.failures, other.runs)
            higher = greater(own, other, policy)
        rows.append(Configuration(name, own, len(hosts[name]), p, higher, again[name]))
    return tuple(rows)


def significant(
    rows: Sequence[Configuration], policy: FlakinessPolicy = POLICY
) -> tuple[Configuration, ...]:
    """The rows that differ, after Bonferroni over the comparisons (two devices are one
    comparison).
    """
    tested = [row for row in rows if row.p is not None]
    comparisons = 1 if len(tested) == 2 and len(rows) == 2 else len(tested)
    return tuple(
        row for row in tested if row.p is not None and row.p * comparisons <= policy.significance
    )

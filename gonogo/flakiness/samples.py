"""The input of attribution: samples (one run of one test), and their tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.rates import Outcome, fisher, greater, rate_of
from gonogo.spec.verdicts import Verdict

ISOLATED = "isolated"
EVEN = 0.5
"""The probability that one of two equal rates is the higher one."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One run.

    `seed` None: not controlled (a gtest iteration), so its digest says nothing. `digest`: of all
    outputs, in one text. `card`: the serial number of the card that its device is on, if known.
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
    verdict: str = ""
    card: str = ""

    @property
    def fresh(self) -> bool:
        """Return whether nothing ran before it in its process."""
        return self.position == 0

    @property
    def digested(self) -> bool:
        """Return whether its digest can be compared with that of another run of its seed."""
        return self.seed is not None and self.digest is not None

    @property
    def place(self) -> str:
        """The context, and whether anything ran before it in its process."""
        return f"{self.context}, {'first' if self.fresh else 'behind others'}"


@dataclass(frozen=True)
class Configuration:
    """A row of the table of a factor: how often the test passed in that configuration.

    It is compared with the first row if that is `isolated`, else with all others together.
    """

    name: str
    runs: int
    passed: int
    failed: int
    host_runs: int
    """Child processes that the runs came from"""
    pass_rate: float | None
    pass_low: float | None
    pass_high: float | None
    p: float | None
    """Fisher's exact test, two-sided, before Bonferroni; null for the row that the others are
    compared with"""
    higher: float | None
    """Posterior probability that it fails more often than the row it is compared with"""
    repeated: int
    """Runs that repeat another of the row bit for bit; they count in no rate"""


def nondeterministic_builds(samples: Iterable[Sample]) -> frozenset[str]:
    """Return the builds of which a seed gave differing digests in equal conditions."""
    digests: dict[Hashable, str | None] = {}
    builds = set()
    for sample in samples:
        if sample.digested:
            conditions = (sample.build, sample.seed, sample.device, sample.context, sample.fresh)
            if digests.setdefault(conditions, sample.digest) != sample.digest:
                builds.add(sample.build)
    return frozenset(builds)


def distinct_places(
    samples: Sequence[Sample],
    numbers: Sequence[float | None] | None = None,
    varying: frozenset[str] | None = None,
) -> list[int]:
    """Return the places of the samples that add information; the others repeat a seed's result.

    A kernel that repeats a seed's bits, in any job or build, gives no new sample: four seeds of
    thirty nights are four. On builds that are nondeterministic each run is a new trial. Samples
    without a controlled seed or a digest all count.

    numbers: a figure of each sample; the same figure of the same seed by another build is no new
    sample either, even with other bits. varying: the nondeterministic builds, if known already.
    """
    varying = nondeterministic_builds(samples) if varying is None else varying
    seen: set[Hashable] = set()
    places = []
    for place, sample in enumerate(samples):
        if sample.digested and sample.build not in varying:
            keys: list[Hashable] = [(sample.seed, sample.digest, sample.outcome)]
            if numbers is not None and numbers[place] is not None:
                keys.append((sample.seed, numbers[place], sample.outcome))
            if not seen.isdisjoint(keys):
                continue
            seen.update(keys)
        places.append(place)
    return places


def contexts(samples: Iterable[Sample]) -> tuple[Configuration, ...]:
    """Return the pass rates per context, as in a bug report's table.

    The isolated context comes first, and the others are compared with it. Isolated means that
    nothing ran before: a sample of the isolated context behind other seeds in the same process gets
    the row `isolated, not first`. Without isolated samples every row is compared with all others.
    """

    def place(sample: Sample) -> str:
        is_behind = sample.context == ISOLATED and not sample.fresh
        return f"{ISOLATED}, not first" if is_behind else sample.context

    return table(samples, place, ISOLATED)


def devices(samples: Iterable[Sample]) -> tuple[Configuration, ...]:
    """Return the pass rates per device, each compared with all others together."""
    return table(samples, lambda sample: sample.device, None)


def table(
    samples: Iterable[Sample], key: Callable[[Sample], str], first: str | None
) -> tuple[Configuration, ...]:
    """Return the rows by `key`, each compared with the row `first`, or without it with all others.

    Within a row, and within the sum of the others, only distinct samples count. Otherwise one seed
    that always fails, and runs every night on one device or again on each of the others, would look
    like a matter of devices.
    """
    everything = list(samples)
    varying = nondeterministic_builds(everything)
    judged: dict[str, list[Sample]] = defaultdict(list)
    for sample in everything:
        if sample.outcome in (Outcome.passed, Outcome.failed):
            judged[key(sample)].append(sample)

    def distinct(runs: Sequence[Sample]) -> list[Sample]:
        return [runs[place] for place in distinct_places(runs, varying=varying)]

    rows_of = {name: distinct(runs) for name, runs in judged.items()}
    names = sorted(rows_of, key=lambda name: (name != first, name))
    rows = []
    for name in names:
        row, _ = rate_of(sample.outcome for sample in rows_of[name])
        p = higher = None
        if len(names) > 1 and name != first:
            against = [first] if first in rows_of else [other for other in names if other != name]
            others = [sample for other in against if other for sample in rows_of[other]]
            other, _ = rate_of(sample.outcome for sample in distinct(others))
            p = fisher(row.failures, row.runs, other.failures, other.runs)
            higher = greater(row, other)
        passed = row.runs - row.failures
        rows.append(
            Configuration(
                name,
                runs=row.runs,
                passed=passed,
                failed=row.failures,
                host_runs=len({sample.host_run for sample in judged[name]}),
                pass_rate=passed / row.runs if row.runs else None,
                pass_low=None if row.high is None else 1 - row.high,
                pass_high=None if row.low is None else 1 - row.low,
                p=p,
                higher=higher,
                repeated=len(judged[name]) - len(rows_of[name]),
            )
        )
    return tuple(rows)


def significant(rows: Sequence[Configuration]) -> tuple[Configuration, ...]:
    """Return the rows that differ, after Bonferroni over the comparisons.

    Two devices are one comparison.
    """
    tested = [row for row in rows if row.p is not None]
    comparisons = 1 if len(tested) == 2 and len(rows) == 2 else len(tested)
    limit = POLICY.significance
    return tuple(row for row in tested if row.p is not None and row.p * comparisons <= limit)


@dataclass(frozen=True)
class OutcomeFactor:
    """How often runs had an outcome, such as hang, by one factor.

    In its rows `failed` counts the runs with the outcome, and `passed` all others that ended.
    """

    name: str
    rows: tuple[Configuration, ...]
    telling: tuple[Configuration, ...]
    """The rows that have it more often than chance, most often first"""


FACTORS: Mapping[str, tuple[Callable[[Sample], str], str]] = {
    "card": (lambda sample: sample.card or "unknown", ""),
    "device": (lambda sample: sample.device, ""),
    "build": (lambda sample: sample.build, "are of one build of {of}, {name}"),
    "context": (lambda sample: sample.context, ""),
    "position": (
        lambda sample: "first in their process" if sample.fresh else "behind others",
        "are {name}",
    ),
}
"""Factor -> its level of a sample, and where runs are in words, if that isn't the usual phrase."""
_USUAL = "are on one {factor} of {of}, {name}"
_NOT_RUN = (Verdict.error, Verdict.skipped, Verdict.not_run)


def outcome_factors(samples: Iterable[Sample], outcome: Verdict) -> tuple[OutcomeFactor, ...]:
    """Return how often runs hang or crash by each factor that has at least two values.

    Each run is a trial, also one that repeats another's bits. Of two factors that divide the runs
    alike, as cards with one device, the first counts.
    """
    trials = [
        replace(
            sample,
            digest=None,
            outcome=Outcome.failed if sample.verdict == outcome else Outcome.passed,
        )
        for sample in samples
        if sample.verdict not in _NOT_RUN
    ]
    factors: dict[Hashable, OutcomeFactor] = {}
    for name, (level, _) in FACTORS.items():
        rows = table(trials, level, None)
        higher = [row for row in significant(rows) if (row.higher or 0.0) > EVEN]
        telling = sorted(higher, key=lambda row: -row.failed)
        if len(rows) > 1:
            division = tuple((row.failed, row.runs) for row in rows)
            factors.setdefault(division, OutcomeFactor(name, rows, tuple(telling)))
    return tuple(factors.values())


def factor_words(factors: Iterable[OutcomeFactor], plural: str) -> str:
    """Return where an outcome is, such as "7 of 10 hangs are on one card of 3, 0100"; or ""."""
    sentences = []
    for factor in factors:
        if factor.telling:
            row, total = factor.telling[0], sum(row.failed for row in factor.rows)
            place = FACTORS[factor.name][1] or _USUAL
            words = place.format(factor=factor.name, of=len(factor.rows), name=row.name)
            sentences.append(f"{row.failed} of {total} {plural} {words} (p = {row.p:.2g})")
    return "; ".join(sentences)

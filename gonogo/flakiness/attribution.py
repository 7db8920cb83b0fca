"""The cause of a flaky test: nondeterminism, device, context, seed or infrastructure.

Digests decide first, outcomes second.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gonogo.devices.suspicion import Suspicion
from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.rates import Outcome, Rate, fisher, odds, rate, rate_of
from gonogo.flakiness.samples import (
    Configuration,
    Sample,
    contexts,
    devices,
    distinct_places,
    significant,
)
from gonogo.spec.described import Described

EXAMPLES = 5
"""Seeds that are named as evidence, so that they can be run again."""


class Cause(Described):
    """The cause of a test's outcomes. Members are declared in order of precedence."""

    unknown = "unknown", "The runs do not tell: no baseline, or no seed was run twice."
    sick_device = (
        "sick_device",
        "Most unrelated tests fail on this device: it is the device, not the test.",
    )
    broken = "broken", "Every run failed."
    infrastructure = (
        "infrastructure",
        "The kernel's own outcomes agree; hangs, crashes and errors come and go.",
    )
    nondeterministic = (
        "nondeterministic",
        "The same seed on the same device gives different outputs.",
    )
    device_dependent = (
        "device_dependent",
        "Equal seeds give different outputs on different devices.",
    )
    context_dependent = (
        "context_dependent",
        "Equal seeds give different outputs, or outcomes, by what ran before in the process.",
    )
    seed_sensitive = "seed_sensitive", "Each seed repeats exactly; some seeds pass and some fail."
    stable = "stable", "Every run passed."


@dataclass(frozen=True)
class SeedExample:
    """A seed that shows a factor, with the values in which its compared runs are equal.

    What was not compared is null.
    """

    build: str | None = None
    seed: int | None = None
    device: str | None = None
    context: str | None = None
    place: str | None = None
    """The device, where contexts were compared; the context, where devices were."""
    digests: dict[str, int] | dict[str, list[str]] | None = None
    """digest -> runs, or the device or context -> its digests"""


@dataclass(frozen=True)
class Factor:
    """One factor with its evidence.

    It says how many seeds were compared and how many differed, with examples, and which
    configurations have differing failure rates.
    """

    cause: Cause
    holds: bool
    compared: Rate
    """The share of the compared seeds that differ."""
    examples: tuple[SeedExample, ...] = ()
    rows: tuple[Configuration, ...] = ()
    """Configurations whose failure rate differs by itself (exact test)."""
    words: str = ""


@dataclass(frozen=True)
class Attribution:
    """The cause of a test's outcomes, with every factor, the rates and the table of contexts.

    `causes` are all that hold; the first is `cause`.
    """

    cause: Cause
    causes: tuple[Cause, ...]
    findings: tuple[Factor, ...]
    failures: Rate
    """The failure rate of runs that add information (samples.distinct_places): a seed that fails
    in the same way every night is one failure."""
    infrastructure: Rate
    """The rate of hangs, crashes and errors among all runs tried."""
    contexts: tuple[Configuration, ...]
    devices: tuple[Configuration, ...]
    words: str
    policy: str
    repeated: int = 0
    """Runs that `failures` leaves out, because they repeat another bit for bit."""


def attribute(
    samples: Iterable[Sample],
    sick: Mapping[str, Suspicion] | None = None,
) -> Attribution:
    """Return why one test's outcomes flicker.

    samples: of one full variant, of one or more builds; digests are compared within a build only.
    sick: devices that gonogo.devices.suspicion.suspects names; runs there are left out, because
    they say nothing about the test.

    Digests come first (4-flakiness). A deterministic kernel must repeat its digest within a group
    of equal (build, seed, device, context, position class). The position class is "first in the
    process" or "behind others", because the state that earlier runs leave is a context of its own.
    Digests that differ in a group of firsts, or in a group of repeats under equal conditions while
    no group of firsts shows determinism, are nondeterminism. Differences between groups are an
    effect of the device or of the context. Where seeds aren't controlled, only the exact tests of
    samples.table on the outcomes decide. Time is linear in the samples, and in the devices where
    all are compared with all.
    """
    everything = list(samples)
    sick_devices = {sample.device for sample in everything} & set(sick or {})
    usable = [sample for sample in everything if sample.device not in sick_devices]
    _, lost = rate_of(sample.outcome for sample in usable)
    judged = [sample for sample in usable if sample.outcome in (Outcome.passed, Outcome.failed)]
    distinct = distinct_places(judged)
    failures, _ = rate_of(judged[place].outcome for place in distinct)
    by_context, by_device = contexts(usable), devices(usable)
    digested = [
        sample for sample in usable if sample.seed is not None and sample.digest is not None
    ]
    repeats, state = _repeats(digested)
    device = _between(
        digested,
        Cause.device_dependent,
        lambda sample: sample.device,
        _all_but_device,
        by_device,
        repeats.compared,
    )
    context = _context(digested, state, repeats.compared, by_context)
    findings = (repeats, device, context, _seeds(usable, repeats))
    holding = [finding.cause for finding in findings if finding.holds]
    repeated = len(judged) - len(distinct)
    cause, words = _decide(everything, sick_devices, failures, lost, findings, repeated)
    causes = (
        tuple(dict.fromkeys([cause, *holding])) if cause is not Cause.unknown else (cause, *holding)
    )
    if sick_devices:
        names = sorted(sick_devices)
        reasons = "; ".join((sick or {})[name].words for name in names)
        words += f"; left out: what ran on {', '.join(names)} ({reasons})"
    return Attribution(
        cause,
        causes,
        findings,
        failures,
        lost,
        by_context,
        by_device,
        words,
        POLICY.version,
        repeated,
    )


def _repeats(digested: Sequence[Sample]) -> tuple[Factor, Factor]:
    """Return the findings of nondeterminism, and of state left by earlier runs in the process.

    A group of firsts that differs is nondeterminism without doubt. A group behind others that
    differs is nondeterminism, too, unless firsts were compared and never differ: then earlier runs
    explain it.
    """
    first = _grouped(
        [sample for sample in digested if sample.fresh],
        lambda s: (s.build, s.seed, s.device, s.context),
    )
    behind = _grouped(
        [sample for sample in digested if not sample.fresh],
        lambda s: (s.build, s.seed, s.device, s.context),
    )
    firsts, others = _differing(first), _differing(behind)
    by_state = (
        firsts[0].runs >= POLICY.few_pairs
        and firsts[0].failures == 0
        and _is_known(others[0], firsts[0])
    )
    state = Factor(
        Cause.context_dependent,
        by_state and others[0].failures > 0,
        others[0],
        others[1],
        words=(
            f"{others[0].words} seeds change with what ran before in their process, and none of"
            f" {firsts[0].runs} that were first in it"
        ),
    )
    if by_state:
        compared, examples = firsts
    else:
        compared = rate(firsts[0].failures + others[0].failures, firsts[0].runs + others[0].runs)
        examples = (*firsts[1], *others[1])[:EXAMPLES]
    words = (
        f"{compared.words} repeated seeds differ on the same device"
        if compared.known
        else "no seed was run twice in equal conditions"
    )
    return Factor(
        Cause.nondeterministic, compared.failures > 0, compared, examples, words=words
    ), state


def _context(
    digested: Sequence[Sample],
    state: Factor,
    repeats: Rate,
    rows: Sequence[Configuration],
) -> Factor:
    """Return the finding of the effect of earlier runs in the process.

    It covers differences between contexts, between first and not first, and state within one
    context.
    """
    between = _between(
        digested,
        Cause.context_dependent,
        lambda sample: f"{sample.context}, {'first' if sample.fresh else 'behind others'}",
        lambda sample: (sample.build, sample.seed, sample.device),
        rows,
        repeats,
    )
    if state.holds and not between.holds:
        return Factor(
            Cause.context_dependent, True, state.compared, state.examples, between.rows, state.words
        )
    return between


def _between(
    digested: Sequence[Sample],
    cause: Cause,
    level: Callable[[Sample], str],
    all_else: Callable[[Sample], Hashable],
    rows: Sequence[Configuration],
    repeats: Rate,
) -> Factor:
    """Return whether a seed's digests depend on the level of a factor, with all else equal.

    all_else: the values that must be equal. A seed counts as compared when two levels or more have
    it, and as differing when no digest is common to all levels. repeats: how often seeds differ
    without any change of level, which is the rate of chance.
    """
    groups: dict[Hashable, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for sample in digested:
        groups[all_else(sample)][level(sample)].add(str(sample.digest))
    compared = differing = 0
    examples: list[SeedExample] = []
    for key, levels in groups.items():
        if len(levels) < 2:
            continue
        compared += 1
        if not set.intersection(*levels.values()):
            differing += 1
            if len(examples) < EXAMPLES:
                examples.append(
                    SeedExample(
                        **_named(key),
                        digests={
                            name: sorted(digests)[:3] for name, digests in sorted(levels.items())
                        },
                    )
                )
    share = rate(differing, compared)
    telling = significant(rows)
    parts = [f"{share.words} seeds differ" if share.known else "no seed was run in two of them"]
    parts += [
        f"{row.name}: {rate(row.failed, row.runs).words} failed, p = {row.p:.2g}"
        for row in telling
        if row.p is not None
    ]
    return Factor(
        cause,
        beyond_chance(share, repeats) or bool(telling),
        share,
        tuple(examples),
        telling,
        "; ".join(parts),
    )


def beyond_chance(differing: Rate, repeats: Rate) -> bool:
    """Return whether seeds differ between levels more often than between plain repeats.

    If a kernel never repeats itself, differences between levels show nothing about a factor. Nor
    does a single one where repeats never differed: a rare race can be missed by all of them. Most
    kernels repeat themselves, so where fewer than `few_pairs` seeds ran twice, that many count as
    equal.
    """
    if not differing.failures:
        return False
    if not repeats.failures:
        agreeing = rate(0, max(repeats.runs, POLICY.few_pairs))
        return _is_known(differing, agreeing)
    more = differing.failures * repeats.runs > repeats.failures * differing.runs
    return (
        more
        and fisher(differing.failures, differing.runs, repeats.failures, repeats.runs)
        <= POLICY.significance
    )


def _is_known(one: Rate, other: Rate) -> bool:
    """Return whether two rates are known to differ.

    A single differing seed among many is more likely a rare race, which the repeats missed.
    """
    return odds(one, other) >= POLICY.factor_odds


def _all_but_device(sample: Sample) -> Hashable:
    return (
        sample.build,
        sample.seed,
        f"{sample.context}, {'first' if sample.fresh else 'behind others'}",
    )


def _seeds(samples: Sequence[Sample], repeats: Factor) -> Factor:
    """Return whether some seeds always fail while the others always pass.

    Outcomes must agree within each (build, seed), and differ between them.
    """
    outcomes: dict[tuple[str, int], list[Outcome]] = defaultdict(list)
    for sample in samples:
        if sample.seed is not None and sample.outcome in (Outcome.passed, Outcome.failed):
            outcomes[(sample.build, sample.seed)].append(sample.outcome)
    steady = [results[0] for results in outcomes.values() if len(set(results)) == 1]
    mixed = len(outcomes) - len(steady)
    failing = [key for key, results in outcomes.items() if set(results) == {Outcome.failed}]
    builds = {build for build, _ in outcomes}
    varies = any(
        len(
            {
                results[0]
                for (of, _), results in outcomes.items()
                if of == build and len(set(results)) == 1
            }
        )
        == 2
        for build in builds
    )
    repeated = sum(len(results) > 1 for results in outcomes.values())
    measured = repeats.compared.runs >= POLICY.few_pairs or repeated >= POLICY.few_pairs
    holds = varies and mixed == 0 and measured and not repeats.holds
    words = f"{len(failing)} of {len(outcomes)} seeds fail whenever they run, {mixed} sometimes"
    if varies and not measured:
        pairs = max(repeated, repeats.compared.runs)
        words += f"; not enough seeds were run twice: {pairs} of {POLICY.few_pairs}"
    examples = tuple(SeedExample(build, seed) for build, seed in failing[:EXAMPLES])
    return Factor(
        Cause.seed_sensitive,
        holds,
        rate(len(failing), len(outcomes)),
        examples,
        words=words,
    )


def _decide(
    everything: Sequence[Sample],
    sick_devices: set[str],
    failures: Rate,
    lost: Rate,
    findings: Sequence[Factor],
    repeated: int,
) -> tuple[Cause, str]:
    """Return the one cause, and a sentence.

    Hangs and crashes explain a flicker only where the kernel's own outcomes don't flicker.
    """
    if sick_devices and not failures.known:
        return Cause.sick_device, Cause.sick_device.sentence
    if not failures.known and not lost.known:
        return Cause.unknown, "no run to judge by" if everything else "no runs"
    same = f" ({repeated} more repeat one of these bit for bit)" if repeated else ""
    judged = f"{failures.words} runs failed{same}" if failures.known else "No run was judged"
    alone = f"{judged}; {lost.words} were lost to hangs, crashes and errors"
    if 0 < failures.failures < failures.runs:
        for finding in findings:
            if finding.holds:
                return (
                    finding.cause,
                    f"{finding.cause.sentence} {_first_up(finding.words)}; {alone}",
                )
        why = "; ".join(
            finding.words
            for finding in findings
            if finding.cause in (Cause.nondeterministic, Cause.seed_sensitive)
        )
        return Cause.unknown, f"It flickers, and the runs do not tell why: {why}; {alone}"
    if (
        failures.known
        and failures.failures == failures.runs
        and failures.low is not None
        and failures.low > POLICY.broken_most
    ):
        return Cause.broken, f"{Cause.broken.sentence} {alone}"
    if lost.failures:
        return Cause.infrastructure, f"{Cause.infrastructure.sentence} {alone}"
    if failures.failures == 0:
        return Cause.stable, f"{Cause.stable.sentence} {alone}"
    return Cause.unknown, f"too few runs to call it broken; {alone}"


def _grouped(
    samples: Iterable[Sample], key: Callable[[Sample], Hashable]
) -> dict[Hashable, Counter[str]]:
    groups: dict[Hashable, Counter[str]] = defaultdict(Counter)
    for sample in samples:
        groups[key(sample)][str(sample.digest)] += 1
    return groups


def _differing(groups: Mapping[Hashable, Counter[str]]) -> tuple[Rate, tuple[SeedExample, ...]]:
    """Return the share of groups that hold differing digests, and examples.

    Only groups with two runs or more are compared.
    """
    compared = [(key, digests) for key, digests in groups.items() if digests.total() > 1]
    differing = [(key, digests) for key, digests in compared if len(digests) > 1]
    examples = tuple(
        SeedExample(**_named(key), digests=dict(digests.most_common(3)))
        for key, digests in differing[:EXAMPLES]
    )
    return rate(len(differing), len(compared)), examples


def _named(key: Hashable) -> dict[str, Any]:
    if not isinstance(key, tuple):
        return {}
    names = ("build", "seed", "device", "context") if len(key) == 4 else ("build", "seed", "place")
    return dict(zip(names, key, strict=True))


def _first_up(words: str) -> str:
    return words[:1].upper() + words[1:]

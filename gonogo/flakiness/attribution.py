"""The cause of a flaky test: nondeterminism, device, context, seed or infrastructure.

Digests decide first, outcomes second.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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
_KERNELS_OWN = (Outcome.passed, Outcome.failed)


class Cause(Described):
    """The cause of a test's outcomes. Members are declared in order of precedence."""

    # fmt: off
    unknown = "unknown", "The runs do not tell: no baseline, or no seed was run twice.", "Not known"
    sick_device = ("sick_device",
        "Most unrelated tests fail on this device: it is the device, not the test.",
        "A sick device")
    broken = "broken", "Every run failed."
    infrastructure = ("infrastructure",
        "The kernel's own outcomes agree; hangs, crashes and errors come and go.")
    nondeterministic = ("nondeterministic",
        "The same seed on the same device gives different outputs.", "Nondeterministic kernel")
    device_dependent = ("device_dependent",
        "Equal seeds give different outputs on different devices.", "The device")
    context_dependent = ("context_dependent",
        "Equal seeds give different outputs, or outcomes, by what ran before in the process.",
        "What ran before")
    seed_sensitive = ("seed_sensitive", "Each seed repeats exactly; some seeds pass and some fail.",
        "The seed")
    stable = "stable", "Every run passed.", "Outcomes don't differ"
    # fmt: on


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
class AttributedFactor:
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
    findings: tuple[AttributedFactor, ...]
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
    samples: Iterable[Sample], sick: Mapping[str, Suspicion] | None = None
) -> Attribution:
    """Return why one test's outcomes flicker.

    samples: of one full variant, of one or more builds; digests are compared within a build only.
    sick: devices that gonogo.devices.suspicion.suspects names; runs there are left out, because
    they say nothing about the test.

    A deterministic kernel must repeat its digest within a group of equal (build, seed, device,
    context, position class). The position class is "first in the process" or "behind others",
    because the state that earlier runs leave is a context of its own. Differences between groups
    are an effect of the device or of the context. Where seeds aren't controlled, only the exact
    tests of samples.table on the outcomes decide. Time is linear in the samples.
    """
    everything = list(samples)
    sick_devices = {
        sample.device: (sick or {})[sample.device].words
        for sample in everything
        if sample.device in (sick or {})
    }
    usable = [sample for sample in everything if sample.device not in sick_devices]
    _, lost = rate_of(sample.outcome for sample in usable)
    judged = [sample for sample in usable if sample.outcome in _KERNELS_OWN]
    distinct = distinct_places(judged)
    failures, _ = rate_of(judged[place].outcome for place in distinct)
    by_context, by_device = contexts(usable), devices(usable)
    digested = [sample for sample in usable if sample.digested]
    repeats, state = _repeats(digested)
    device = _between(digested, Cause.device_dependent, by_device, repeats.compared)
    context = _between(digested, Cause.context_dependent, by_context, repeats.compared)
    if state.holds and not context.holds:
        context = replace(state, rows=context.rows)
    findings = (repeats, device, context, _seeds(judged, repeats))
    repeated = len(judged) - len(distinct)
    cause, why = _decide(bool(sick_devices), failures, lost, findings)
    holding = [finding.cause for finding in findings if finding.holds]
    words = _words(cause, why, failures, lost, repeated, findings)
    if not failures.known and not lost.known and not sick_devices:
        words = "no run to judge by" if everything else "no runs"
    if sick_devices:
        reasons = "; ".join(sick_devices[name] for name in sorted(sick_devices))
        words += f"; left out: what ran on {', '.join(sorted(sick_devices))} ({reasons})"
    return Attribution(
        cause=cause,
        causes=tuple(dict.fromkeys([cause, *holding])),
        findings=findings,
        failures=failures,
        infrastructure=lost,
        contexts=by_context,
        devices=by_device,
        words=words,
        policy=POLICY.version,
        repeated=repeated,
    )


def _decide(
    is_sick: bool, failures: Rate, lost: Rate, findings: Sequence[AttributedFactor]
) -> tuple[Cause, AttributedFactor | None]:
    """Return the one cause, and the factor that shows it."""
    if not failures.known and (is_sick or not lost.known):
        return (Cause.sick_device if is_sick else Cause.unknown), None
    if 0 < failures.failures < failures.runs:
        why = next((finding for finding in findings if finding.holds), None)
        return (Cause.unknown if why is None else why.cause), why
    always = failures.known and failures.failures == failures.runs
    if always and failures.low is not None and failures.low > POLICY.broken_most:
        return Cause.broken, None
    if lost.failures:
        return Cause.infrastructure, None
    return (Cause.unknown if failures.failures else Cause.stable), None


def _words(
    cause: Cause,
    why: AttributedFactor | None,
    failures: Rate,
    lost: Rate,
    repeated: int,
    findings: Sequence[AttributedFactor],
) -> str:
    if cause is Cause.sick_device:
        return cause.sentence
    same = f" ({repeated} more repeat one of these bit for bit)" if repeated else ""
    judged = f"{failures.words} runs failed{same}" if failures.known else "No run was judged"
    alone = f"{judged}; {lost.words} were lost to hangs, crashes and errors"
    if why is not None:
        return f"{cause.sentence} {why.words[:1].upper()}{why.words[1:]}; {alone}"
    if cause is not Cause.unknown:
        return f"{cause.sentence} {alone}"
    if failures.failures == failures.runs:
        return f"too few runs to call it broken; {alone}"
    silent = (Cause.nondeterministic, Cause.seed_sensitive)
    reasons = "; ".join(finding.words for finding in findings if finding.cause in silent)
    return f"It flickers, and the runs do not tell why: {reasons}; {alone}"


def _repeats(digested: Sequence[Sample]) -> tuple[AttributedFactor, AttributedFactor]:
    """Return the findings of nondeterminism, and of state left by earlier runs in the process.

    A group of firsts that differs is nondeterminism without doubt. A group behind others that
    differs is nondeterminism, too, unless firsts were compared and never differ: then earlier runs
    explain it.
    """
    (first, first_examples), (behind, behind_examples) = (
        _differing(sample for sample in digested if sample.fresh is is_fresh)
        for is_fresh in (True, False)
    )
    by_state = first.runs >= POLICY.few_pairs and first.failures == 0 and _is_known(behind, first)
    state = AttributedFactor(
        Cause.context_dependent,
        by_state and behind.failures > 0,
        behind,
        behind_examples,
        words=(
            f"{behind.words} seeds change with what ran before in their process, and none of"
            f" {first.runs} that were first in it"
        ),
    )
    compared, examples = first, first_examples
    if not by_state:
        compared = rate(first.failures + behind.failures, first.runs + behind.runs)
        examples = (*first_examples, *behind_examples)[:EXAMPLES]
    words = (
        f"{compared.words} repeated seeds differ on the same device"
        if compared.known
        else "no seed was run twice in equal conditions"
    )
    repeats = AttributedFactor(
        Cause.nondeterministic, compared.failures > 0, compared, examples, words=words
    )
    return repeats, state


def _differing(samples: Iterable[Sample]) -> tuple[Rate, tuple[SeedExample, ...]]:
    """Return the share of repeated seeds that have differing digests, and examples."""
    groups: dict[Any, Counter[str]] = defaultdict(Counter)
    for sample in samples:
        key = (sample.build, sample.seed, sample.device, sample.context)
        groups[key][str(sample.digest)] += 1
    compared = [(key, digests) for key, digests in groups.items() if digests.total() > 1]
    differing = [(key, digests) for key, digests in compared if len(digests) > 1]
    examples = tuple(
        SeedExample(build, seed, device, context, digests=dict(digests.most_common(3)))
        for (build, seed, device, context), digests in differing[:EXAMPLES]
    )
    return rate(len(differing), len(compared)), examples


_LEVELS: Mapping[Cause, tuple[Callable[[Sample], str], Callable[[Sample], str]]] = {
    Cause.device_dependent: (lambda sample: sample.device, lambda sample: sample.place),
    Cause.context_dependent: (lambda sample: sample.place, lambda sample: sample.device),
}
"""Factor -> its level of a sample, and what must be equal besides build and seed."""


def _between(
    digested: Sequence[Sample], cause: Cause, rows: Sequence[Configuration], repeats: Rate
) -> AttributedFactor:
    """Return whether a seed's digests depend on the level of a factor, with all else equal.

    A seed counts as compared when two levels or more have it, and as differing when no digest is
    common to all levels. repeats: how often seeds differ without any change of level.
    """
    level, other = _LEVELS[cause]
    groups: dict[Any, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for sample in digested:
        key = (sample.build, sample.seed, other(sample))
        groups[key][level(sample)].add(str(sample.digest))
    compared = {key: levels for key, levels in groups.items() if len(levels) > 1}
    differing = [
        (key, levels) for key, levels in compared.items() if not set.intersection(*levels.values())
    ]
    examples = tuple(
        SeedExample(
            build,
            seed,
            place=place,
            digests={name: sorted(digests)[:3] for name, digests in sorted(levels.items())},
        )
        for (build, seed, place), levels in differing[:EXAMPLES]
    )
    share = rate(len(differing), len(compared))
    telling = significant(rows)
    parts = [f"{share.words} seeds differ" if share.known else "no seed was run in two of them"]
    parts += [
        f"{row.name}: {rate(row.failed, row.runs).words} failed, p = {row.p:.2g}" for row in telling
    ]
    holds = beyond_chance(share, repeats) or bool(telling)
    return AttributedFactor(cause, holds, share, examples, telling, "; ".join(parts))


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
        return _is_known(differing, rate(0, max(repeats.runs, POLICY.few_pairs)))
    more = differing.failures * repeats.runs > repeats.failures * differing.runs
    p = fisher(differing.failures, differing.runs, repeats.failures, repeats.runs)
    return more and p <= POLICY.significance


def _is_known(one: Rate, other: Rate) -> bool:
    """Return whether two rates are known to differ, and not by one rare race."""
    return odds(one, other) >= POLICY.factor_odds


def _seeds(judged: Sequence[Sample], repeats: AttributedFactor) -> AttributedFactor:
    """Return whether some seeds always fail while the others always pass."""
    outcomes: dict[Any, Counter[Outcome]] = defaultdict(Counter)
    for sample in judged:
        if sample.seed is not None:
            outcomes[sample.build, sample.seed][sample.outcome] += 1
    steady: dict[Hashable, set[Outcome]] = defaultdict(set)
    for (build, _), results in outcomes.items():
        if len(results) == 1:
            steady[build].update(results)
    mixed = sum(len(results) > 1 for results in outcomes.values())
    failing = [key for key, results in outcomes.items() if set(results) == {Outcome.failed}]
    varies = any(len(kinds) == 2 for kinds in steady.values())
    repeated = sum(results.total() > 1 for results in outcomes.values())
    pairs = max(repeated, repeats.compared.runs)
    measured = pairs >= POLICY.few_pairs
    words = f"{len(failing)} of {len(outcomes)} seeds fail whenever they run, {mixed} sometimes"
    if varies and not measured:
        words += f"; not enough seeds were run twice: {pairs} of {POLICY.few_pairs}"
    return AttributedFactor(
        Cause.seed_sensitive,
        varies and mixed == 0 and measured and not repeats.holds,
        rate(len(failing), len(outcomes)),
        tuple(SeedExample(*key) for key in failing[:EXAMPLES]),
        words=words,
    )

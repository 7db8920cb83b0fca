"""Why a test flickers: nondeterminism, device, context, seed or infrastructure, from digests first
and outcomes second.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gonogo.devices.suspicion import Suspicion
from gonogo.flakiness.policy import POLICY, FlakinessPolicy
from gonogo.flakiness.rates import Outcome, Rate, fisher, greater, rate, rate_of
from gonogo.flakiness.samples import Configuration, Sample, contexts, devices, once, significant

EXAMPLES = 5
"""Seeds that are named as evidence: enough to run them again."""


class Cause(StrEnum):
    """Why a test's outcomes are what they are. Declared in the order in which one is taken for the
    cause.
    """

    unknown = "unknown"
    sick_device = "sick_device"
    broken = "broken"
    infrastructure = "infrastructure"
    nondeterministic = "nondeterministic"
    device_dependent = "device_dependent"
    context_dependent = "context_dependent"
    seed_sensitive = "seed_sensitive"
    stable = "stable"

    @property
    def sentence(self) -> str:
        """What the word means, in one sentence."""
        return _SENTENCES[self]


_SENTENCES = {
    Cause.unknown: "The runs do not tell: no baseline, or no seed was run twice.",
    Cause.sick_device: "Most unrelated tests fail on this device: it is the device, not the test.",
    Cause.broken: "Every run failed.",
    Cause.infrastructure: "The kernel's own outcomes agree; hangs, crashes and errors come and go.",
    Cause.nondeterministic: "The same seed on the same device gives different outputs.",
    Cause.device_dependent: "Equal seeds give different outputs on different devices.",
    Cause.context_dependent: "Equal seeds give different outputs, or outcomes, by what ran before in the process.",
    Cause.seed_sensitive: "Each seed repeats exactly; some seeds pass and some fail.",
    Cause.stable: "Every run passed.",
}


@dataclass(frozen=True)
class Finding:
    """One factor: how many seeds were compared, how many differed, examples, and the rows whose
    rates differ.
    """

    cause: Cause
    holds: bool
    compared: Rate
    """Seeds that differ of those compared."""
    examples: tuple[Mapping[str, Any], ...] = ()
    rows: tuple[Configuration, ...] = ()
    """Configurations whose failure rate differs by itself (exact test)."""
    words: str = ""

    def to_json(self) -> dict[str, Any]:
        """In plain JSON types."""
        return {
            "cause": self.cause.value,
            "holds": self.holds,
            "compared": self.compared.to_json(),
            "examples": [dict(each) for each in self.examples],
            "rows": [row.to_json() for row in self.rows],
            "words": self.words,
        }


@dataclass(frozen=True)
class Attribution:
    """The cause, every factor with its evidence, the rates, and the table of contexts. `causes` are
    all that hold, the first is `cause`.
    """

    cause: Cause
    causes: tuple[Cause, ...]
    findings: tuple[Finding, ...]
    failures: Rate
    """Of runs that tell something new (samples.once): a seed that fails in the same way every night
    is one failure."""
    lost: Rate
    """Hangs, crashes and errors, of all runs tried."""
    contexts: tuple[Configuration, ...]
    devices: tuple[Configuration, ...]
    words: str
    policy: str
    repeated: int = 0
    """Runs that `failures` leaves out, since they repeat another bit for bit."""

    def to_json(self) -> dict[str, Any]:
        """In plain JSON types."""
        return {
            "cause": self.cause.value,
            "causes": [each.value for each in self.causes],
            "findings": [each.to_json() for each in self.findings],
            "failures": self.failures.to_json(),
            "infrastructure": self.lost.to_json(),
            "contexts": [row.to_json() for row in self.contexts],
            "devices": [row.to_json() for row in self.devices],
            "words": self.words,
            "policy": self.policy,
            "repeated": self.repeated,
        }


def attribute(
    samples: Iterable[Sample],
    policy: FlakinessPolicy = POLICY,
    sick: Mapping[str, Suspicion] | None = None,
) -> Attribution:
    """Why one test's outcomes flicker; samples of one full variant, of one build or more (digests
    are compared within a build only).

    sick: devices that gonogo.devices.suspicion.suspects names; what ran there is left out, for it says
    nothing of the test.

    Digests first, by 4-flakiness. Groups of equal (build, seed, device, context, position class)
    hold what a deterministic kernel must repeat; position class is "first in the process" or
    "behind others", since the state that others leave is a context of its own. Digests that differ
    in a group of firsts, or in a group of repeats under equal conditions while no group of firsts
    shows determinism, are nondeterminism. Between groups they are an effect of the device or of the
    context. Where seeds aren't controlled, the exact tests of samples.table on the outcomes decide
    alone. Linear in the samples, and in the devices where all are compared with all.
    """
    everything = list(samples)
    away = {each.device for each in everything} & set(sick or {})
    kept = [each for each in everything if each.device not in away]
    _, lost = rate_of((each.outcome for each in kept), policy)
    judged = [each for each in kept if each.outcome in (Outcome.passed, Outcome.failed)]
    news = once(judged)
    failures, _ = rate_of((judged[place].outcome for place in news), policy)
    by_context, by_device = contexts(kept, policy), devices(kept, policy)
    digested = [each for each in kept if each.seed is not None and each.digest is not None]
    repeats, state = _repeats(digested, policy)
    device = _between(
        digested,
        Cause.device_dependent,
        lambda each: each.device,
        _beside_device,
        by_device,
        repeats.compared,
        policy,
    )
    context = _context(digested, state, repeats.compared, by_context, policy)
    findings = (repeats, device, context, _seeds(kept, repeats, policy))
    holding = [each.cause for each in findings if each.holds]
    cause, words = _decide(
        everything, away, failures, lost, findings, len(judged) - len(news), policy
    )
    causes = (
        tuple(dict.fromkeys([cause, *holding])) if cause is not Cause.unknown else (cause, *holding)
    )
    if away:
        named = ", ".join(sorted(away))
        words += f"; left out: what ran on {named} ({'; '.join((sick or {})[each].words for each in sorted(away))})"
    return Attribution(
        cause,
        causes,
        findings,
        failures,
        lost,
        by_context,
        by_device,
        words,
        policy.version,
        len(judged) - len(news),
    )


def _repeats(digested: Sequence[Sample], policy: FlakinessPolicy) -> tuple[Finding, Finding]:
    """(nondeterminism proper, state carried over from what ran before in the same process).

    A group of firsts that differs is nondeterminism without doubt. A group behind others that
    differs is, too, unless firsts were compared and never differ: then it is what ran before.
    """
    first = _grouped(
        [each for each in digested if each.fresh], lambda s: (s.build, s.seed, s.device, s.context)
    )
    behind = _grouped(
        [each for each in digested if not each.fresh],
        lambda s: (s.build, s.seed, s.device, s.context),
    )
    firsts, others = _differing(first, policy), _differing(behind, policy)
    by_state = (
        firsts[0].runs >= policy.few_pairs
        and firsts[0].failures == 0
        and (greater(others[0], firsts[0], policy) or 0.0) > policy.level
    )
    state = Finding(
        Cause.context_dependent,
        by_state and others[0].failures > 0,
        others[0],
        others[1],
        words=f"{others[0].words} seeds change with what ran before in their process, and none of {firsts[0].runs} that were first in it",
    )
    if by_state:
        compared, examples = firsts
    else:
        compared = rate(
            firsts[0].failures + others[0].failures, firsts[0].runs + others[0].runs, policy
        )
        examples = (*firsts[1], *others[1])[:EXAMPLES]
    words = (
        f"{compared.words} repeated seeds differ on the same device"
        if compared.known
        else "no seed was run twice in equal conditions"
    )
    return Finding(
        Cause.nondeterministic, compared.failures > 0, compared, examples, words=words
    ), state


def _context(
    digested: Sequence[Sample],
    state: Finding,
    repeats: Rate,
    rows: Sequence[Configuration],
    policy: FlakinessPolicy,
) -> Finding:
    """The effect of what ran before: between contexts, between first and not first, and state
    within one context.
    """
    between = _between(
        digested,
        Cause.context_dependent,
        lambda each: f"{each.context}, {'first' if each.fresh else 'behind others'}",
        lambda each: (each.build, each.seed, each.device),
        rows,
        repeats,
        policy,
    )
    if state.holds and not between.holds:
        return Finding(
            Cause.context_dependent, True, state.compared, state.examples, between.rows, state.words
        )
    return between


def _between(
    digested: Sequence[Sample],
    cause: Cause,
    level: Callable[[Sample], str],
    beside: Callable[[Sample], Hashable],
    rows: Sequence[Configuration],
    repeats: Rate,
    policy: FlakinessPolicy,
) -> Finding:
    """Whether a seed's digests depend on the level of a factor, all else (`beside`) equal.

    A seed counts as compared when two levels or more have it, and as differing when no digest is
    common to all levels. repeats: how often seeds differ without any change of level, which is what
    chance does.
    """
    groups: dict[Hashable, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    names = [level(sample) for sample in digested]
    if len(set(names)) > 1:
        for sample, name in zip(digested, names, strict=True):
            groups[beside(sample)][name].add(str(sample.digest))
    compared = differing = 0
    examples: list[Mapping[str, Any]] = []
    for key, levels in groups.items():
        if len(levels) < 2:
            continue
        compared += 1
        if not set.intersection(*levels.values()):
            differing += 1
            if len(examples) < EXAMPLES:
                examples.append(
                    {
                        **_named(key),
                        "digests": {
                            name: sorted(found)[:3] for name, found in sorted(levels.items())
                        },
                    }
                )
    found = rate(differing, compared, policy)
    telling = significant(rows, policy)
    parts = [f"{found.words} seeds differ" if found.known else "no seed was run in two of them"]
    parts += [
        f"{row.name}: {row.rate.words} failed, p = {row.p:.2g}"
        for row in telling
        if row.p is not None
    ]
    return Finding(
        cause,
        beyond_chance(found, repeats, policy) or bool(telling),
        found,
        tuple(examples),
        telling,
        "; ".join(parts),
    )


def beyond_chance(found: Rate, repeats: Rate, policy: FlakinessPolicy = POLICY) -> bool:
    """Whether seeds differ more often than their plain repeats do: of a kernel that never repeats
    itself a factor shows nothing by that.
    """
    if not found.failures:
        return False
    if not repeats.failures:
        return True
    more = found.failures * repeats.runs > repeats.failures * found.runs
    return (
        more
        and fisher(found.failures, found.runs, repeats.failures, repeats.runs)
        <= policy.significance
    )


def _beside_device(sample: Sample) -> Hashable:
    return (
        sample.build,
        sample.seed,
        f"{sample.context}, {'first' if sample.fresh else 'behind others'}",
    )


def _seeds(kept: Sequence[Sample], repeats: Finding, policy: FlakinessPolicy) -> Finding:
    """Whether single seeds always pass and others always fail: outcomes per (build, seed) that
    agree within, and differ between.
    """
    outcomes: dict[tuple[str, int], list[Outcome]] = defaultdict(list)
    for sample in kept:
        if sample.seed is not None and sample.outcome in (Outcome.passed, Outcome.failed):
            outcomes[(sample.build, sample.seed)].append(sample.outcome)
    steady = [found[0] for found in outcomes.values() if len(set(found)) == 1]
    mixed = len(outcomes) - len(steady)
    failing = [key for key, found in outcomes.items() if set(found) == {Outcome.failed}]
    builds = {build for build, _ in outcomes}
    varies = any(
        len(
            {
                found[0]
                for (of, _), found in outcomes.items()
                if of == build and len(set(found)) == 1
            }
        )
        == 2
        for build in builds
    )
    repeated = sum(len(found) > 1 for found in outcomes.values())
    measured = repeats.compared.runs >= policy.few_pairs or repeated >= policy.few_pairs
    holds = varies and mixed == 0 and measured and not repeats.holds
    words = f"{len(failing)} of {len(outcomes)} seeds fail whenever they run, {mixed} sometimes"
    if varies and not measured:
        words += f"; not enough seeds were run twice: {max(repeated, repeats.compared.runs)} of {policy.few_pairs}"
    examples = tuple({"build": build, "seed": seed} for build, seed in failing[:EXAMPLES])
    return Finding(
        Cause.seed_sensitive,
        holds,
        rate(len(failing), len(outcomes), policy),
        examples,
        words=words,
    )


def _decide(
    everything: Sequence[Sample],
    away: set[str],
    failures: Rate,
    lost: Rate,
    findings: Sequence[Finding],
    again: int,
    policy: FlakinessPolicy,
) -> tuple[Cause, str]:
    """The one cause, and a sentence. Hangs and crashes explain a flicker only where the kernel's
    own outcomes don't flicker.
    """
    if away and not failures.known:
        return Cause.sick_device, Cause.sick_device.sentence
    if not failures.known and not lost.known:
        return Cause.unknown, "no run to judge by" if everything else "no runs"
    same = f" ({again} more repeat one of these bit for bit)" if again else ""
    alone = (
        f"{failures.words} runs failed{same}; {lost.words} were lost to hangs, crashes and errors"
    )
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
        and failures.low > policy.broken_most
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


def _differing(
    groups: Mapping[Hashable, Counter[str]], policy: FlakinessPolicy
) -> tuple[Rate, tuple[Mapping[str, Any], ...]]:
    """Groups with two runs or more, how many of them hold differing digests, and examples."""
    compared = [(key, found) for key, found in groups.items() if found.total() > 1]
    differing = [(key, found) for key, found in compared if len(found) > 1]
    examples = tuple(
        {**_named(key), "digests": dict(found.most_common(3))}
        for key, found in differing[:EXAMPLES]
    )
    return rate(len(differing), len(compared), policy), examples


def _named(key: Hashable) -> dict[str, Any]:
    names = (
        ("build", "seed", "device", "context")
        if isinstance(key, tuple) and len(key) == 4
        else ("build", "seed", "place")
    )
    return dict(zip(names, key, strict=False)) if isinstance(key, tuple) else {}


def _first_up(words: str) -> str:
    return words[:1].upper() + words[1:]

"""Fixed, or only masked? Compare two builds by their errors, not by red and green."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from types import MappingProxyType
from typing import NamedTuple

from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.rates import Rate, rate
from gonogo.spec.described import Described
from gonogo.spec.verdicts import Explanation

COUNTS = re.compile(r"[\d,]+ of [\d,]+")
"""How many values, rows and columns are wrong."""


class Change(Described):
    """The change of a kernel between two builds."""

    # fmt: off
    unchanged = ("unchanged",
        "Nothing changed in this kernel: every output is the same bit for bit.", "", "not_judged")
    fix_masked = ("fix_masked",
        "The verdict turned green, and the error stayed: the fault is masked, not fixed.",
        "Masked, not fixed", "pass_by_tolerance")
    fixed = "fixed", "The error was unexplained, and rounding explains it now.", "", "pass"
    broken = "broken", "Rounding explained the error, and does not any more.", "Broke", "fail"
    still_wrong = ("still_wrong", "The error is unexplained on both, and looks the same.", "",
        "fail")
    wrong_otherwise = ("wrong_otherwise", "The error is unexplained on both, and looks different:"
        " another fault, or one of several fixed.", "Wrong in another way", "fail")
    right = "right", "Rounding explains the error on both.", "Still right", "pass"
    unknown = ("unknown", "One of the builds has no judged seeds: there is no baseline.",
        "Not known", "inconclusive")
    # fmt: on


class Fault(NamedTuple):
    """A fault that is named for an output of a seed; its size is 1 where it has none."""

    id: str
    size: float
    label: str = ""


class Seed(NamedTuple):
    """One seed of one build: its color, its explanation, and what its outputs are known by.

    All mappings are by output. `green` is the answer of the seed's own gate. `faults` holds the
    best fault of each output for which one is named, `places` says where its wrong values lie.
    """

    green: bool | None
    explanation: Explanation
    digests: Mapping[str, str] = MappingProxyType({})
    faults: Mapping[str, Fault] = MappingProxyType({})
    places: Mapping[str, str] = MappingProxyType({})

    @property
    def red(self) -> bool | None:
        """Whether its gate is red; None where it has none."""
        return None if self.green is None else not self.green

    @property
    def wrong(self) -> bool | None:
        """Whether it is unexplained; None for suspect, inconclusive and not judged."""
        answers = {Explanation.unexplained: True, Explanation.explained: False}
        return answers.get(self.explanation)


@dataclass(frozen=True)
class Record:
    """A test on a build: its seeds by number."""

    build: str
    seeds: Mapping[int, Seed]

    @property
    def wrong(self) -> list[Seed]:
        """The seeds whose error is unexplained."""
        return [seed for seed in self.seeds.values() if seed.wrong]

    def share(self, question: Callable[[Seed], bool | None]) -> Rate:
        """Return how many of the seeds that answer a question say yes."""
        answers = [question(seed) for seed in self.seeds.values()]
        return rate(answers.count(True), answers.count(True) + answers.count(False))


@dataclass(frozen=True)
class BuildChange:
    """The comparison of two builds of one test, with its evidence."""

    before: str
    after: str
    change: Change
    turned_green: bool
    red: tuple[Rate, Rate]
    unexplained: tuple[Rate, Rate]
    same: tuple[str, ...]
    """Wrong outputs whose fault, or whose wrong places, stayed the same."""
    differing: tuple[str, ...]
    by: str
    """The basis of the comparison: digests, explanations, faults, places, or nothing."""
    common: int
    """The seeds of both builds whose bits were compared."""
    words: str
    policy: str


def compare_builds(before: Record, after: Record) -> BuildChange:
    """Return how a kernel changed from one build to the next.

    Unchanged: all seeds that both builds ran have equal digests. Else the explanations decide: a
    build counts as wrong when a seed is unexplained, as right when seeds are explained and none is
    unexplained. If both are wrong, the signatures of the outputs decide: the fault that is named,
    with its size, else the places of the wrong values. Turned green: red seeds before, and none
    after.
    """
    sides = (before, after)
    red = before.share(lambda seed: seed.red), after.share(lambda seed: seed.red)
    unexplained = before.share(lambda seed: seed.wrong), after.share(lambda seed: seed.wrong)
    turned = red[0].failures > 0 and red[1].failures == 0 and red[1].known
    wrong = [bool(share.failures) for share in unexplained]
    same: tuple[str, ...] = ()
    differing: tuple[str, ...] = ()
    by, digests = "explanations", _digests(before, after)
    if not all(map(judged, sides)):
        change, by = Change.unknown, "nothing"
    elif digests and all(one == two for one, two in digests):
        change, by = Change.unchanged, "digests"
    elif all(wrong):
        same, differing, by = _signature(before, after)
        change = Change.fix_masked if turned else Change.still_wrong
        change = Change.wrong_otherwise if differing or not same else change
    elif any(wrong):
        change = Change.fixed if wrong[0] else Change.broken
    else:
        change = Change.right
    compared = BuildChange(
        before=before.build,
        after=after.build,
        change=change,
        turned_green=turned,
        red=red,
        unexplained=unexplained,
        same=same,
        differing=differing,
        by=by,
        common=len(digests),
        words="",
        policy=POLICY.version,
    )
    return replace(compared, words=_words(compared))


def series(records: Sequence[Record]) -> tuple[BuildChange, ...]:
    """Compare each build with the nearest earlier one that has judged seeds.

    Builds without judged seeds give `unknown` and are no baseline.
    """
    changes: list[BuildChange] = []
    base: Record | None = None
    for record in records:
        if base is not None:
            changes.append(compare_builds(base, record))
        if judged(record) or base is None:
            base = record
    return tuple(changes)


def judged(record: Record) -> bool:
    """Return whether any of its seeds is explained or unexplained; else it is no baseline."""
    return any(seed.wrong is not None for seed in record.seeds.values())


def _common(before: Record, after: Record) -> list[tuple[Seed, Seed]]:
    """Return the seeds that both builds ran."""
    numbers = before.seeds.keys() & after.seeds.keys()
    return [(before.seeds[number], after.seeds[number]) for number in numbers]


def _digests(before: Record, after: Record) -> list[tuple[Mapping[str, str], Mapping[str, str]]]:
    """Return the digests of the outputs of each common seed that has them on both."""
    pairs = ((one.digests, two.digests) for one, two in _common(before, after))
    return [pair for pair in pairs if all(pair)]


def _signature(before: Record, after: Record) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    """Return (outputs that stayed, outputs that differ, basis of the comparison).

    An output that is wrong after is the same if it had the same fault before, or its wrong values
    the same places if no fault is named. One with neither says nothing.
    """
    same: list[str] = []
    differing: list[str] = []
    bases = set()
    for output in sorted({name for seed in after.wrong for name in (*seed.faults, *seed.places)}):
        now, was = _typical_fault(after, output), _typical_fault(before, output)
        if known := now or was:
            bases.add("faults")
            text = known.label or known.id
            is_same = now is not None and was is not None and _same_fault(was, now)
        else:
            bases.add("places")
            text, is_same = _usual_place(after, output), _same_places(before, after, output)
        (same if is_same else differing).append(f"{output}: {text}")
    return tuple(same), tuple(differing), min(bases, default="nothing")


def _typical_fault(record: Record, output: str) -> Fault | None:
    """Return the fault of most unexplained seeds that name one, with the median of its sizes."""
    named = [seed.faults[output] for seed in record.wrong if output in seed.faults]
    if not named:
        return None
    (most, _), *_ = Counter(fault.id for fault in named).most_common(1)
    alike = [fault for fault in named if fault.id == most]
    return alike[0]._replace(size=median(fault.size for fault in alike))


def _same_fault(first: Fault, second: Fault) -> bool:
    largest = max(abs(first.size), abs(second.size))
    is_close = abs(first.size - second.size) <= POLICY.same_size * largest
    return first.id == second.id and is_close


def _same_places(before: Record, after: Record, output: str) -> bool:
    """Return whether an output's wrong values lie in the same places on most seeds of both builds.

    Of builds without common seeds, the most frequent places are compared. How many values are wrong
    differs from seed to seed.
    """
    pairs = [
        (one.places.get(output), two.places.get(output)) for one, two in _common(before, after)
    ]
    known = [(one, two) for one, two in pairs if one and two]
    known = known or [(_usual_place(before, output), _usual_place(after, output))]
    alike = sum(COUNTS.sub("some", one) == COUNTS.sub("some", two) for one, two in known)
    return 2 * alike > len(known)


def _usual_place(record: Record, output: str) -> str:
    """Return where an output's wrong values lie on most seeds; "" if no seed says it."""
    places = Counter(seed.places[output] for seed in record.wrong if output in seed.places)
    return max(places, key=lambda place: (places[place], place), default="")


def _words(compared: BuildChange) -> str:
    """Return a comparison as one line."""
    builds, unexplained = (compared.before, compared.after), compared.unexplained
    if compared.change is Change.unknown:
        shares = zip(builds, unexplained, strict=True)
        missing = " and ".join(build for build, share in shares if not share.known)
        return f"{compared.change.sentence} No judged seed of {missing}."
    parts = [f"{' to '.join(builds)}: {compared.change.sentence.removesuffix('.')}"]
    if compared.change is Change.unchanged:
        parts.append(f"{compared.common} seeds compared")
        if compared.turned_green:
            parts.append(
                "the verdict turned green for another reason: another tolerance, judge or set of"
                " seeds"
            )
    else:
        for name, shares_of in (("red", compared.red), ("unexplained", unexplained)):
            counts = [f"{s.failures} of {s.runs}" if s.known else "not known" for s in shares_of]
            parts.append(f"{name} {', then '.join(counts)}")
    if compared.same:
        parts.append(f"the same by {compared.by}: {', '.join(compared.same[:4])}")
    if compared.differing:
        parts.append(f"different: {', '.join(compared.differing[:4])}")
    return "; ".join(parts)

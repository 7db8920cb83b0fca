"""What a bisection says: its searches as the page draws them, what changed at a place that it
found, and all of it in words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.orm import Session

from gonogo.flakiness.bisecting import Signal
from gonogo.flakiness.bisection import Look
from gonogo.flakiness.masking import BuildChange, Change, compare_builds
from gonogo_storage.automation.bisection_records import record
from gonogo_storage.automation.bisections import Bisection, Probe

_WORDS = {
    "fixed": "fixed at {build}: rounding explains the error from there on",
    "broken": "broken at {build}: rounding doesn't explain the error from there on",
    "masked": "masked at {build}, not fixed: the verdict turned green and the fault stayed",
    "unmasked": "shown at {build}, not made there: the verdict turned red, and the fault was there before",
    "quieter": "fewer failures from {build} on",
    "louder": "more failures from {build} on",
}


def shown(track: Signal, look: Look, builds: Sequence[int], names: Sequence[str]) -> dict[str, Any]:
    """A search in plain JSON: `posterior` is [[place of the first changed build, probability], ...]
    among the builds that can be tested.
    """
    place = None if look.culprit is None else builds[look.culprit]
    return {
        "track": track.value,
        "stage": look.stage.value,
        "low": builds[look.low] if builds else 0,
        "high": builds[look.high] if builds else 0,
        "posterior": [
            [builds[look.low + 1 + number], round(share, 6)]
            for number, share in enumerate(look.posterior)
        ],
        "evidence": round(look.evidence, 4),
        "place": place,
        "build": None if place is None else names[place],
        "probability": round(look.probability, 6),
        "before": round(look.before, 6),
        "after": round(look.after, 6),
    }


def finding(
    session: Session,
    found: Bisection,
    probes: Sequence[Probe],
    track: Signal,
    look: Look,
    builds: Sequence[int],
) -> dict[str, Any]:
    """A change that was found, with its evidence: the runs of its two neighbours compared by their
    numbers.
    """
    assert look.culprit is not None
    before, place = builds[look.culprit - 1], builds[look.culprit]
    change = compare_builds(
        record(session, found, probes, before), record(session, found, probes, place)
    )
    kind = kind_of(track, change, better=look.after < look.before)
    between = [found.builds[each] for each in range(before + 1, place)]
    said = _WORDS[kind].format(build=found.builds[place])
    if between:
        said += f", or at one of {', '.join(between)}, which could not be tested"
    return {
        "track": track.value,
        "kind": kind,
        "place": place,
        "build": found.builds[place],
        "before": found.builds[before],
        "between": between,
        "probability": round(look.probability, 6),
        "rates": [round(look.before, 6), round(look.after, 6)],
        "words": said,
        "comparison": change.to_json(),
    }


def kind_of(track: Signal, change: BuildChange, *, better: bool) -> str:
    """fixed, broken, masked, unmasked, or (nothing is known of the errors, or rounding explains
    them) quieter or louder.

    better: the rate of bad runs falls. A verdict that changes while the error stays unexplained has
    been masked, or shows at last.
    """
    if track is Signal.numbers:
        return "fixed" if better else "broken"
    wrong = [share.failures > 0 for share in change.unexplained]
    if change.change is Change.fixed and better:
        return "fixed"
    if change.change is Change.broken and not better:
        return "broken"
    if wrong == [True, True]:
        return "masked" if better else "unmasked"
    return "quieter" if better else "louder"


def words(conclusion: str, findings: Sequence[Mapping[str, Any]]) -> str:
    """The answer in one line."""
    if conclusion == "no_change":
        return "no change: the first and the last build are alike"
    if conclusion == "untestable":
        return "fewer than two of the builds could be run"
    return "; ".join(dict.fromkeys(str(each["words"]) for each in findings))

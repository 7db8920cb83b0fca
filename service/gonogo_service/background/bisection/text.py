"""A bisection's results: its searches, the changes that it found, and their sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy.orm import Session

from gonogo.flakiness.bisecting import Signal
from gonogo.flakiness.bisection import SearchState
from gonogo.flakiness.masking import BuildChange, Change, compare_builds
from gonogo_service.bisections import store as bisections
from gonogo_service.bisections.records import record
from gonogo_service.bisections.store import Bisection, ChangeKind, FoundChange, Probe, SearchTrack

_WORDS: Mapping[ChangeKind, str] = {
    "fixed": "fixed at {build}: rounding explains the error from there on",
    "broken": "broken at {build}: rounding doesn't explain the error from there on",
    "masked": "masked at {build}, not fixed: the verdict turned green and the fault stayed",
    "unmasked": (
        "unmasked at {build}, not introduced: the verdict turned red, and the fault existed before"
    ),
    "quieter": "fewer {outcomes} from {build} on",
    "louder": "more {outcomes} from {build} on",
}
_OUTCOMES = {Signal.hang: "hangs", Signal.crash: "crashes"}


def search_track(
    track: Signal, search: SearchState, builds: Sequence[int], names: Sequence[str]
) -> SearchTrack:
    """Return a search as it is stored."""
    place = None if search.culprit is None else builds[search.culprit]
    return SearchTrack(
        track=track,
        stage=search.stage,
        low=builds[search.low] if builds else 0,
        high=builds[search.high] if builds else 0,
        posterior=[
            (builds[search.low + 1 + number], round(share, 6))
            for number, share in enumerate(search.posterior)
        ],
        evidence=round(search.evidence, 4),
        place=place,
        build=None if place is None else names[place],
        probability=round(search.probability, 6),
        before=round(search.before, 6),
        after=round(search.after, 6),
    )


def finding(
    session: Session,
    bisection: Bisection,
    probes: Sequence[Probe],
    track: Signal,
    search: SearchState,
    builds: Sequence[int],
) -> FoundChange:
    """Return a change with its evidence: the compared numbers of its two neighbors' runs."""
    assert search.culprit is not None
    before, place = builds[search.culprit - 1], builds[search.culprit]
    change = compare_builds(
        record(session, bisection, probes, before), record(session, bisection, probes, place)
    )
    kind = kind_of(track, change, better=search.after < search.before)
    between = [bisection.builds[skipped] for skipped in range(before + 1, place)]
    outcomes = _OUTCOMES.get(track, "failures")
    sentence = _WORDS[kind].format(build=bisection.builds[place], outcomes=outcomes)
    if between:
        sentence += f", or at one of {', '.join(between)}, which could not be tested"
    worse = before if kind == "quieter" else place
    if track in _OUTCOMES and (message := bisections.message(session, probes, worse, track)):
        sentence += f": {message}"
    return FoundChange(
        track=track,
        kind=kind,
        place=place,
        build=bisection.builds[place],
        before=bisection.builds[before],
        between=between,
        probability=round(search.probability, 6),
        rates=(round(search.before, 6), round(search.after, 6)),
        words=sentence,
        comparison=change,
    )


def kind_of(track: Signal, change: BuildChange, *, better: bool) -> ChangeKind:
    """Return fixed, broken, masked, unmasked, quieter or louder.

    `better` says that the rate of bad runs falls. A verdict that changes while the error stays
    unexplained is masked or unmasked. Quieter and louder mean that the errors are unknown, or that
    rounding explains them.
    """
    if track is Signal.numbers:
        return "fixed" if better else "broken"
    if track in _OUTCOMES:
        return "quieter" if better else "louder"
    wrong = [share.failures > 0 for share in change.unexplained]
    if change.change is Change.fixed and better:
        return "fixed"
    if change.change is Change.broken and not better:
        return "broken"
    if wrong == [True, True]:
        return "masked" if better else "unmasked"
    return "quieter" if better else "louder"


def words(conclusion: str, findings: Sequence[FoundChange]) -> str:
    """Return the answer in one line."""
    if conclusion == "no_change":
        return "no change: the first and the last build are alike"
    if conclusion == "untestable":
        return "fewer than two of the builds could run"
    return "; ".join(dict.fromkeys(finding.words for finding in findings))

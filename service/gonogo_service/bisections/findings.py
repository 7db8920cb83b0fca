"""The changes that a bisection finds: what each is, with its evidence and its sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy.orm import Session

from gonogo.flakiness.bisecting import Signal
from gonogo.flakiness.bisection import SearchState
from gonogo.flakiness.masking import BuildChange, Change, Record, compare_builds
from gonogo_service.bisections import store
from gonogo_service.bisections.model import BisectionRow, ChangeKind, FoundChange, SearchTrack
from gonogo_service.tests import build_series
from gonogo_service.tests.variants import job_of

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
_CONCLUSIONS = {
    "no_change": "no change: the first and the last build are alike",
    "untestable": "fewer than two of the builds could run",
}


def search_track(
    track: Signal, search: SearchState, builds: Sequence[int], names: Sequence[str]
) -> SearchTrack:
    """Return a search as it is stored. builds: the places of the testable builds."""
    culprit, first = search.culprit, search.low + 1
    return SearchTrack(
        track=track,
        stage=search.stage,
        low=builds[search.low] if builds else 0,
        high=builds[search.high] if builds else 0,
        posterior=[
            (builds[number], round(share, 6))
            for number, share in enumerate(search.posterior, first)
        ],
        evidence=round(search.evidence, 4),
        place=None if culprit is None else builds[culprit],
        build=None if culprit is None else names[builds[culprit]],
        probability=round(search.probability, 6),
        before=round(search.before, 6),
        after=round(search.after, 6),
    )


def found_change(
    session: Session,
    bisection: BisectionRow,
    track: Signal,
    search: SearchState,
    builds: Sequence[int],
) -> FoundChange:
    """Return a change with its evidence: the compared numbers of its two neighbors' runs."""
    assert search.culprit is not None
    before, place = builds[search.culprit - 1], builds[search.culprit]
    change = compare_builds(_record(session, bisection, before), _record(session, bisection, place))
    kind = kind_of(track, change, better=search.after < search.before)
    name, outcomes = bisection.builds[place], _OUTCOMES.get(track, "failures")
    between = bisection.builds[before + 1 : place]
    sentence = _WORDS[kind].format(build=name, outcomes=outcomes)
    if between:
        sentence += f", or at one of {', '.join(between)}, which could not be tested"
    worse = before if kind == "quieter" else place
    if track in _OUTCOMES and (message := store.message(session, bisection, worse, track)):
        sentence += f": {message}"
    return FoundChange(
        track=track,
        kind=kind,
        place=place,
        build=name,
        before=bisection.builds[before],
        between=between,
        probability=round(search.probability, 6),
        rates=(round(search.before, 6), round(search.after, 6)),
        words=sentence,
        comparison=change,
    )


def _record(session: Session, bisection: BisectionRow, place: int) -> Record:
    """Return the record of the build at one place of the series, with its seeds."""
    probes = [probe for probe in bisection.probes if probe.ended and probe.place == place]
    facts = [job for probe in probes if (job := job_of(session, probe.job_id)) is not None]
    facts.sort(key=lambda job: job.id, reverse=True)
    records = build_series.records(session, facts)
    return Record(bisection.builds[place], records[-1].seeds if records else {})


def kind_of(track: Signal, change: BuildChange, *, better: bool) -> ChangeKind:
    """Return fixed, broken, masked, unmasked, quieter or louder.

    `better` says that the rate of bad runs falls. A verdict that changes while the error stays
    unexplained is masked or unmasked. Quieter and louder mean that the errors are unknown, or that
    rounding explains them.
    """
    if track is Signal.numbers:
        return "fixed" if better else "broken"
    if track is Signal.verdicts:
        if change.change is (Change.fixed if better else Change.broken):
            return "fixed" if better else "broken"
        if all(share.failures for share in change.unexplained):
            return "masked" if better else "unmasked"
    return "quieter" if better else "louder"


def answer(conclusion: str, findings: Sequence[FoundChange]) -> str:
    """Return the answer in one line."""
    sentences = "; ".join(dict.fromkeys(finding.words for finding in findings))
    return _CONCLUSIONS.get(conclusion, sentences)

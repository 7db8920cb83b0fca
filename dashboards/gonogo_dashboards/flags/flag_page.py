"""Read models of flags: one as a line of a list, and its page with evidence and history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.flags import flag_advice
from gonogo_dashboards.kit import build_cells, comparators_view, evidence_view, words
from gonogo_dashboards.kit.advice import Advice
from gonogo_dashboards.kit.build_cells import RecentBuilds
from gonogo_dashboards.kit.evidence_view import EvidenceView
from gonogo_dashboards.kit.list_rows import details_of, shape_of, source_url, tolerance_of
from gonogo_service.flags.api import COMPUTED, FLAGS
from gonogo_service.flags.model import FlagChangeRow, FlagRow
from gonogo_service.flags.noun import ACKNOWLEDGED_FOR, FlagState
from gonogo_service.kit import rows
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.people import store as tokens
from gonogo_service.tests import axis_changes, entry_names, recent_builds, test_list
from gonogo_service.tests.variants import Variant, newest_builds

BUILDS = 40
"""The last builds that the page shows."""
UNTIL = f"For {ACKNOWLEDGED_FOR.days} days, or until the date that you choose"
"""How long an acknowledgement lasts."""
_SHOWN_ELSEWHERE = ("reason", "check")


FLAG_LINE: Any = rows.extended_answer(
    FlagRow,
    "FlagLine",
    without=("evidence",),
    **COMPUTED,
    words=(str, "The numbers behind the sentence"),
    shape=str,
    tolerance=str,
    details=(str, "The suite's name of its test, and its fields that differ from the default"),
    variant=str,
    still=(str, "Whether the newest build still has it"),
    others=(list[dict[str, str]], "The other open flags of the same test"),
    test_url=str,
    job_url=str,
)
"""A flag in a list: the fields of the API, and what tells its test from others."""


@dataclass(frozen=True)
class FlagChange:
    """A change of a flag, and the name of who made it."""

    entry: FlagChangeRow
    actor: str
    details: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class FlagView:
    """The page of one flag."""

    flag: Mapping[str, Any]
    meaning: tuple[str, ...]
    """Three sentences: what it is, where it was found, what to do."""
    decided: str
    """Comparators that decided the worst seed of its job; "" where allclose is the only one."""
    advice: tuple[Advice, ...]
    """The steps to take, each with its button."""
    recent: RecentBuilds
    facts: tuple[tuple[str, str], ...]
    evidence_view: EvidenceView
    evidence: Mapping[str, Any]
    history: tuple[FlagChange, ...]
    accepts: str
    """The effect that acknowledging it would have on commits."""
    expires_day: str
    before: Mapping[str, str | None]
    """The fields that an undo restores."""
    at: str | None


def one(session: Session, flag_id: str, now: datetime) -> FlagView | None:
    """Return the page of a flag; None where there is no flag with this id."""
    flag = FLAGS.get(session, flag_id)
    if flag is None:
        return None
    test = test_list.specs(session, {flag.test_key}).get(flag.test_key, {})
    variant = Variant.of(flag)
    newest = newest_builds(session, [variant]).get(variant)
    entry = entry_names.latest(session, [flag.test_key]).get(flag.test_key)
    shown = line(flag, test, newest, entry)
    of_gauge = flag.kind.of_gauge
    occurrences = words.count(flag.jobs, "gauge" if of_gauge else "job")
    facts = [
        ("a mutant that passes" if of_gauge else "build", flag.build),
        ("branch and board", shown["variant"]),
        ("tolerance", shown["tolerance"]),
        ("opened", words.moment(timestamp(flag.opened_at))),
        ("last found", f"{words.moment(timestamp(flag.updated_at))}, in {occurrences}"),
        ("owner", flag.owner or "nobody"),
        ("reason", flag.reason or "none"),
    ]
    if flag.expires_at:
        facts += [("acknowledged until", words.moment(timestamp(flag.expires_at)))]
    results = recent_builds.results(session, [variant], BUILDS).get(variant, ())
    places = build_cells.places(results)
    changes = axis_changes.of_tests(session, {flag.test_key: places})[flag.test_key]
    compared = "" if of_gauge else flag.last_job
    return FlagView(
        flag=shown,
        meaning=_meaning(flag, shown["still"], now),
        decided=compared and comparators_view.of_job(session, compared, test.get("tolerance", {})),
        advice=tuple(flag_advice.steps(session, flag, test)),
        recent=build_cells.recent(results, changes),
        facts=tuple(facts),
        evidence_view=evidence_view.read(flag.evidence),
        evidence=flag.evidence,
        history=tuple(_change(session, entry) for entry in flag.history),
        accepts=flag.effect_until(UNTIL),
        expires_day=(timestamp(flag.expires_at) or "")[:10],
        before={
            "state": "open" if flag.state is FlagState.reopened else flag.state,
            "owner": flag.owner,
            "reason": flag.reason,
            "expires": timestamp(flag.expires_at),
        },
        at=timestamp(now),
    )


def _meaning(flag: FlagRow, still: str, now: datetime) -> tuple[str, ...]:
    place = (
        f"Found by {words.count(flag.jobs, 'gauge')}"  # its "build" is a mutant that passes
        if flag.kind.of_gauge
        else f"Found on {words.brief(flag.build)}, in {words.count(flag.jobs, 'job')}"
    )
    still = f"; {words.inline(still)}" if still else ""
    since = words.since(flag.opened_at, now)  # again, if it was resolved
    return flag.kind.sentence, f"{place}; opened {since}{still}.", flag.kind.advice


def line(
    flag: FlagRow,
    test: Mapping[str, Any],
    newest_build: str | None,
    entry: str | None = None,
    others: Sequence[FlagRow] = (),
) -> dict[str, Any]:
    """Return a stored flag as a line of a list (FLAG_LINE); `test` is its canonical form.

    newest_build: the newest build of its variant that has results. entry: a suite's name for its
    test. others: the open flags of its test.
    """
    kind, evidence = flag.kind, flag.evidence
    still = ""
    if newest_build is not None and not kind.of_gauge:
        gone = f"Not found on the newest build, {words.brief(newest_build)}"
        still = gone if kind.is_gone(flag.build, newest_build) else "The newest build still has it"
    return rows.values(
        FLAG_LINE,
        flag,
        sentence=str(evidence.get("sentence") or flag.sentence),
        words=str(evidence.get("words") or ""),
        shape=shape_of(test) if test else "",
        tolerance=tolerance_of(test) if test else "",
        details=details_of(test, entry),
        variant=words.variant_of(Variant.of(flag)),
        still=still,
        others=[
            {"words": other.kind.label, "build": other.build, "url": urls.flag(other.id)}
            for other in others
            if other.id != flag.id
        ],
        test_url=urls.history(flag.test_key, Variant.of(flag).place),
        job_url=source_url(kind, flag.last_job),
    )


def _change(session: Session, entry: FlagChangeRow) -> FlagChange:
    details = tuple(
        (evidence_view.label(name), evidence_view.text(value))
        for name, value in (entry.detail or {}).items()
        if name not in _SHOWN_ELSEWHERE and value is not None
    )
    return FlagChange(entry, tokens.name_of(session, entry.actor), details)

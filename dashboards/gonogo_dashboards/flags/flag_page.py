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
from gonogo_dashboards.kit.build_cells import RecentBuilds
from gonogo_dashboards.kit.evidence_view import EvidenceView
from gonogo_dashboards.kit.list_rows import details_of, shape_of, source_url, tolerance_of
from gonogo_dashboards.kit.tolerance_advice import Advice
from gonogo_service.builds import entry_names
from gonogo_service.flags import store as flags
from gonogo_service.flags.flag_changes import ACKNOWLEDGED_FOR
from gonogo_service.flags.flag_history import FlagEntry
from gonogo_service.flags.store import Flag
from gonogo_service.flags.triage import OpenFlag
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.kit.database.records import from_object
from gonogo_service.kit.database.states import FlagKind, FlagState
from gonogo_service.people import store as tokens
from gonogo_service.tests import annotations as axis_changes
from gonogo_service.tests import recent_builds, test_list
from gonogo_service.tests.variants import Variant, newest_builds

BUILDS = 40
"""The last builds that the page shows."""
UNTIL = f"For {ACKNOWLEDGED_FOR.days} days, or until the date that you choose"
"""How long an acknowledgement lasts."""
_SHOWN_ELSEWHERE = ("reason", "check")


@dataclass(frozen=True)
class OtherFlag:
    """Another open flag of the same test."""

    words: str
    build: str
    url: str


@dataclass(frozen=True)
class FindingLine:
    """A flag in a list: its test, its build, its age, its owner."""

    id: str
    url: str
    kind: str
    kind_words: str
    verdict: str
    state: str
    state_words: str
    others: tuple[OtherFlag, ...]
    """The open flags of the same test besides this one."""
    sentence: str
    words: str
    """The numbers behind the sentence."""
    diagnosis: str
    kernel: str
    shape: str
    tolerance: str
    details: str
    """The suite's name of its test, and its fields that differ from the default."""
    test_url: str
    build: str
    still: str
    """Whether the newest build still has it."""
    variant: str
    owner: str | None
    reason: str | None
    jobs: int
    job_url: str
    version: int
    opened_at: str
    updated_at: str
    age: str
    expires_at: str | None
    effect: str | None
    """The effect of its acknowledgement on commits, and until when."""


@dataclass(frozen=True)
class FlagChange:
    """A change of a flag: opened, reopened, resolved, expired, or changed by somebody."""

    at: str
    age: str
    actor: str
    change: str
    reason: str
    details: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class FlagView:
    """The page of one flag."""

    flag: FindingLine
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
    version: int
    change_url: str
    accepts: str
    """The effect that acknowledging it would have on commits."""
    expires_day: str
    before: Mapping[str, str | None]
    """The fields that an undo restores."""
    at: str | None


def one(session: Session, flag_id: str, now: datetime) -> FlagView | None:
    """Return the page of a flag; None where there is no flag with this id."""
    flag = flags.look(session, flag_id)
    if flag is None:
        return None
    test = test_list.specs(session, {flag.test_key}).get(flag.test_key, {})
    variant = Variant.of(flag)
    newest = newest_builds(session, [variant]).get(variant)
    entry = entry_names.latest(session, [flag.test_key]).get(flag.test_key)
    shown = line(flag, test, now, newest, entry)
    gauged = flag.kind == FlagKind.blunt_test
    noun = "gauge" if gauged else "job"
    facts = [
        ("a mutant that passes" if gauged else "build", flag.build),
        ("branch and board", shown.variant),
        ("tolerance", shown.tolerance),
    ]
    facts += [
        ("opened", _at(flag.opened_at)),
        ("last found", f"{_at(flag.updated_at)}, in {words.count(flag.jobs, noun)}"),
    ]
    facts += [("owner", flag.owner or "nobody"), ("reason", flag.reason or "none")]
    if flag.expires_at:
        facts += [("acknowledged until", _at(flag.expires_at))]
    results = recent_builds.results(session, [variant], BUILDS).get(variant, ())
    places = build_cells.places(results)
    changes = axis_changes.read(session, places, flag.workload_key, flag.test_key)
    return FlagView(
        flag=shown,
        meaning=_meaning(flag, shown, now),
        decided=""
        if gauged or flag.last_job is None
        else comparators_view.of_job(session, flag.last_job, test.get("tolerance", {})),
        advice=flag_advice.steps(session, flag, test),
        recent=build_cells.recent(results, changes),
        facts=tuple(facts),
        evidence_view=evidence_view.read(flag.evidence),
        evidence=flag.evidence,
        history=tuple(_change(session, entry, now) for entry in flag.history),
        version=flag.version,
        change_url=urls.change_flag(flag_id),
        accepts=flags.effect(flag, UNTIL),
        expires_day=(timestamp(flag.expires_at) or "")[:10],
        before={
            "state": "open" if flag.state == FlagState.reopened else flag.state,
            "owner": flag.owner,
            "reason": flag.reason,
            "expires": timestamp(flag.expires_at),
        },
        at=timestamp(now),
    )


def _meaning(flag: Flag, line: FindingLine, now: datetime) -> tuple[str, ...]:
    kind = words.FLAG_SENTENCES.get(flag.kind, line.sentence)
    place = (
        f"Found by {words.count(flag.jobs, 'gauge')}"  # its "build" is a mutant that passes
        if flag.kind == FlagKind.blunt_test
        else f"Found on {words.brief(flag.build)}, in {words.count(flag.jobs, 'job')}"
    )
    since = f"{place}; opened {words.since(flag.opened_at, now)}"  # again, if it was resolved
    still = f"; {words.inline(line.still)}" if line.still else ""
    advice = words.FLAG_ADVICE.get(flag.kind, "")
    return tuple(text for text in (kind, f"{since}{still}.", advice) if text)


def line(
    flag: Flag,
    test: Mapping[str, Any],
    now: datetime,
    newest_build: str | None,
    entry: str | None = None,
    others: Sequence[OpenFlag] = (),
) -> FindingLine:
    """Return a stored flag as a line of a list; `test` is its canonical form.

    newest_build: the newest build of its variant that has results. entry: a suite's name for its
    test. others: the open flags of its test.
    """
    kind, evidence = flag.kind, flag.evidence
    variant = {"branch": flag.branch, "arch": flag.arch, "board": flag.board}
    return from_object(
        FindingLine,
        flag,
        url=urls.flag(flag.id),
        kind_words=words.FLAGS.get(kind, evidence_view.label(kind)),
        verdict=words.FLAG_VERDICTS.get(kind, "suspect"),
        state_words=words.FLAG_STATES.get(flag.state, flag.state),
        others=tuple(
            OtherFlag(words.FLAGS[FlagKind(other.kind)], other.build, urls.flag(other.id))
            for other in others
            if other.id != flag.id
        ),
        sentence=str(
            evidence.get("sentence") or evidence.get("words") or words.FLAGS.get(kind, kind)
        ),
        words=str(evidence.get("words") or ""),
        diagnosis=str(evidence.get("diagnosis") or ""),
        shape=shape_of(test) if test else "",
        tolerance=tolerance_of(test) if test else "",
        details=details_of(test, entry),
        test_url=urls.history(flag.test_key, variant),
        still=words.still_there(kind, flag.build, newest_build),
        variant=words.variant(flag.branch, flag.arch, flag.board),
        job_url=source_url(kind, flag.last_job),
        opened_at=timestamp(flag.opened_at),
        updated_at=timestamp(flag.updated_at),
        age=words.since(flag.updated_at, now),
        expires_at=timestamp(flag.expires_at),
        effect=flag.effect,
    )


def _change(session: Session, entry: FlagEntry, now: datetime) -> FlagChange:
    detail = {
        name: value
        for name, value in (entry.detail or {}).items()
        if name not in _SHOWN_ELSEWHERE and value is not None
    }
    details = tuple(
        (evidence_view.label(name), evidence_view.text(value)) for name, value in detail.items()
    )
    return from_object(
        FlagChange,
        entry,
        at=timestamp(entry.at),
        age=words.since(entry.at, now),
        actor=tokens.name_of(session, entry.actor),
        change=entry.what,
        reason=entry.reason or "",
        details=details,
    )


def _at(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"

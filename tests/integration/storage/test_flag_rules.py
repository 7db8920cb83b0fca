"""The rules of flags in the database alone: what opens, renews, reopens, resolves and expires them.
On both databases where their SQL or locks may differ."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

import pytest
from sqlalchemy import text, update
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

import audit_log
from database_params import BOTH_ENGINES
from gonogo.errors import FieldError
from gonogo.flakiness.flag_kinds import FlagKind
from gonogo_service.flags import attention
from gonogo_service.flags import store as flags
from gonogo_service.flags.api import FLAGS
from gonogo_service.flags.model import FlagRow
from gonogo_service.flags.noun import FlagState
from gonogo_service.flags.store import Outdated
from gonogo_service.jobs import closing
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.engine import make_engine, session
from gonogo_service.kit.database.ids import new_id
from gonogo_service.kit.database.states import JobState
from gonogo_service.kit.outbox import outbox
from gonogo_service.tests.variants import Variant
from job_flow import new_job
from stored_flow import LATER, NOW

SECOND = (LATER - NOW) / 60
UNKNOWN = "01900000-0000-7000-8000-000000000000"
HOLLOW = FlagKind.passes_by_tolerance
KNOWN = {"state": "acknowledged", "owner": "ada", "reason": "known", "expires": NOW + SECOND}
"""An acknowledgement."""


def ended(current: Session, build: int = 1, branch: str = "main", at: datetime = NOW) -> JobRow:
    """Store an ended job of a build."""
    new = new_job(1, build=f"b{build}", build_sequence=build, branch=branch)
    job = jobs.create(current, new, now=at)
    job.state, job.finished_at, job.done = JobState.finished, at, 1
    job.counts = {"pass": 1}
    return job


def report(
    current: Session, job: JobRow, words: str = "seen", kind: FlagKind = HOLLOW, at: datetime = NOW
) -> tuple[FlagRow, bool]:
    """Store a finding of a job; return the flag, and whether it opened."""
    return flags.upsert(current, FlagRow.finding(kind, job, {"words": words}), now=at)


@pytest.fixture
def flag(current: Session) -> FlagRow:
    """An open flag."""
    return report(current, ended(current))[0]


def topics(current: Session) -> list[str]:
    """Return the topics of the messages about flags."""
    due = outbox.due(current, topics=["flag.opened", "flag.resolved"], now=LATER)
    return [message.topic for message in due]


def audited(current: Session, action: str) -> list[Any]:
    """Return the details of the audit's entries of an action, which a commit would write."""
    current.dispatch.before_commit(current)
    return [entry.detail for entry in audit_log.entries(current, action=action)]


@BOTH_ENGINES
def test_the_first_finding_opens_a_flag_and_tells_it_once(current: Session) -> None:
    job, next_job = ended(current), ended(current, 2)
    flag, opened = report(current, job)
    assert opened
    assert (flag.state, flag.version, flag.jobs) == ("open", 1, 1)
    assert (flag.first_job, flag.opened_at) == (job.id, NOW)
    # judged anew, with nothing new
    assert report(current, job, at=NOW + SECOND) == (flag, False)
    assert flag.version == 1
    assert report(current, job, "seen better", at=NOW + SECOND) == (flag, False)
    assert (flag.version, flag.jobs, flag.evidence["words"]) == (2, 1, "seen better")
    assert flag.updated_at == NOW + SECOND
    assert report(current, next_job) == (flag, False)
    assert (flag.version, flag.jobs, flag.build) == (3, 2, "b2")
    assert (flag.first_job, flag.last_job) == (job.id, next_job.id)
    assert [(one.what, one.before, one.after, one.actor, one.reason) for one in flag.history] == [
        ("opened", None, "open", "background", "seen")
    ]
    assert topics(current) == ["flag.opened"]


@pytest.mark.parametrize(
    ("branch", "build", "renewed"), [("main", 1, False), ("main", 2, True), ("emulator", 1, True)]
)
def test_an_older_build_does_not_replace_newer_evidence(
    current: Session, branch: str, build: int, renewed: bool
) -> None:
    report(current, ended(current, 2, branch))
    flag, opened = report(current, ended(current, build, branch), "again")
    assert (flag.evidence["words"] == "again", flag.jobs, opened) == (renewed, 1 + renewed, False)


@BOTH_ENGINES
@pytest.mark.parametrize(
    ("kind", "branch", "build", "seconds", "reopened"),
    [
        (HOLLOW, "main", 3, 2, True),
        (HOLLOW, "main", 3, 1, False),  # it ended when the flag was resolved
        (HOLLOW, "main", 2, 2, True),
        (HOLLOW, "main", 1, 2, False),  # the newest build is the second
        (HOLLOW, "emulator", 1, 2, True),  # the emulator's builds are no series
        (FlagKind.blunt_test, "main", 1, 2, True),  # a gauge measures the test
        (FlagKind.blunt_test, "main", 1, 1, False),
    ],
)
def test_a_resolved_flag_is_reopened_by_newer_evidence_only(
    current: Session, kind: FlagKind, branch: str, build: int, seconds: int, reopened: bool
) -> None:
    first = ended(current, 2, branch)
    flag, _ = report(current, first, kind=kind)
    assert flags.resolve(current, flag.id, version=1, why="quiet", detail={}, now=NOW + SECOND)
    assert report(current, first, "anew", kind)[1] is False  # the same job is no new evidence
    at = NOW + seconds * SECOND
    assert report(current, ended(current, build, branch, at), "again", kind, at)[1] is reopened
    assert (flag.state, flag.version) == (("reopened", 3) if reopened else ("resolved", 2))
    assert flag.opened_at == (at if reopened else NOW)
    assert topics(current)[2:] == ["flag.opened"] * reopened


def test_evidence_without_its_job_counts(current: Session, flag: FlagRow) -> None:
    job = current.get_one(JobRow, flag.last_job)
    finding = FlagRow.finding(HOLLOW, job, {"sentence": "imported"}, build="b0")
    finding.last_job = UNKNOWN
    assert flags.upsert(current, finding, now=NOW)[0].last_job == UNKNOWN


@BOTH_ENGINES
def test_a_flag_is_quiet_after_its_evidence_and_the_newest_job_of_its_variant(
    current: Session, flag: FlagRow
) -> None:
    def quiet_after() -> list[str]:
        return [flag.quiet_after for flag in attention.active(current, variant)]

    first = current.get_one(JobRow, flag.last_job)
    variant = Variant(flag.test_key, flag.branch, flag.arch, flag.board)
    assert quiet_after() == [first.id]
    second, elsewhere = ended(current, 2), ended(current, 2)
    elsewhere.board = "p150"
    current.flush()
    report(current, first, "judged anew")
    assert quiet_after() == [second.id]
    ended(current, 3).state = JobState.running
    report(current, first, "and again")
    assert quiet_after() == [second.id]
    for other in ({"board": "p150"}, {"arch": "blackhole"}, {"branch": "dev"}, {"test_key": "x"}):
        assert attention.active(current, Variant(**{**variant.__dict__, **other})) == []
    flags.change(current, flag.id, {"state": "resolved"}, actor="ada", now=NOW)
    assert quiet_after() == []


def test_the_open_ones_are_those_that_were_reopened_too(current: Session) -> None:
    job = ended(current)
    raised = [report(current, job, kind=kind)[0] for kind in list(FlagKind)[:3]]
    raised[0].state, raised[1].state = FlagState.reopened, FlagState.resolved
    current.flush()
    reopened, resolved, opened = (flag.id for flag in raised)

    def listed(**filters: Any) -> set[str]:
        return {flag.id for flag in FLAGS.page(current, **filters).items}

    assert listed(state="open") == {reopened, opened}
    assert listed(state="resolved") == {resolved}
    assert listed(job=job.id, build="b1", test=job.test_key) == {reopened, resolved, opened}
    assert listed(job="nonsense") == listed(job=UNKNOWN) == set()
    assert listed(kind=raised[0].kind.value) == {reopened}
    assert FLAGS.get(current, "nonsense") is FLAGS.get(current, UNKNOWN) is None


def test_a_change_by_hand_is_made_once_and_against_the_version_that_was_seen(
    current: Session, flag: FlagRow
) -> None:
    def change(version: int | None = None, **given: Any) -> None:
        assert flags.change(current, flag.id, given, actor="ada", version=version, now=NOW) is flag

    with pytest.raises(Outdated) as outdated:
        change(2, **KNOWN)
    assert (outdated.value.value, outdated.value.limit) == (2, 1)
    with pytest.raises(FieldError):
        change(**KNOWN | {"expires": NOW})  # not in the future
    for version in (1, 2):
        change(version, **KNOWN)
        assert flag.version == 2
    for nothing in (UNKNOWN, "nonsense"):
        assert flags.change(current, nothing, KNOWN, actor="ada") is None
    assert len(audited(current, "flag.changed")) == 1
    assert topics(current) == ["flag.opened"]
    change(state="resolved", reason="fixed")
    assert (flag.version, flag.expires_at, flag.history[0].what) == (3, None, "resolved")
    change(state="resolved", owner="bob")
    assert flag.history[0].what == "changed"
    assert topics(current) == ["flag.opened", "flag.resolved"]
    # written by another process since it was read
    current.execute(update(FlagRow).values(version=9).execution_options(synchronize_session=False))
    with pytest.raises(Outdated):
        change(4, state="open")


def test_a_reopened_flag_that_is_set_open_stays_reopened(current: Session, flag: FlagRow) -> None:
    flag.state = FlagState.reopened
    current.flush()
    flags.change(current, flag.id, {"state": "open"}, actor="ada", now=NOW)
    assert (flag.state, flag.version) == ("reopened", 1)


@BOTH_ENGINES
@pytest.mark.parametrize("is_over", [False, True])
def test_an_acknowledgement_expires_at_its_end(
    current: Session, flag: FlagRow, is_over: bool
) -> None:
    flags.change(current, flag.id, KNOWN, actor="ada", now=NOW)
    at = NOW + SECOND if is_over else NOW
    assert flags.expired(current, now=at) is is_over
    assert flags.expire(current, now=at) == is_over
    assert (flag.state, flag.version) == (("open", 3) if is_over else ("acknowledged", 2))
    assert flag.expires_at == (None if is_over else NOW + SECOND)
    assert topics(current) == ["flag.opened"] * (1 + is_over)
    assert len(audited(current, "flag.expired")) == is_over


def test_a_quiet_flag_resolves_unless_it_changed_meanwhile(current: Session, flag: FlagRow) -> None:
    resolve = partial(flags.resolve, current, why="quiet", detail={"runs": 9}, now=NOW)
    assert not resolve(flag.id, version=2)
    assert not resolve(new_id(), version=1)
    assert resolve(flag.id, version=1)
    assert not resolve(flag.id, version=2)
    entry = flag.history[0]
    assert (entry.what, entry.before, entry.actor) == ("resolved", "open", "background")
    assert (entry.reason, entry.detail) == ("quiet", {"runs": 9})
    assert audited(current, "flag.resolved") == [{"reason": "quiet", "runs": 9}]
    assert topics(current) == ["flag.opened", "flag.resolved"]


NOTHING: dict[str, Any] = {"fields": {"owner": None}, "actor": "ada"}
WRITERS: tuple[Callable[[Session, JobRow, FlagRow], object], ...] = (
    lambda current, job, flag: report(current, job),
    lambda current, job, flag: flags.change(current, flag.id, **NOTHING),
    lambda current, job, flag: flags.change_many(current, [flag.id], **NOTHING),
    lambda current, job, flag: flags.resolve(
        current, flag.id, version=9, why="", detail={}, now=NOW
    ),
    lambda current, job, flag: closing.lock(current, job.id),
)
"""Each reads its row under the row's lock, and here finds nothing to write."""


def test_who_changes_a_flag_or_a_job_reads_it_under_its_lock(migrated_postgres_url: str) -> None:
    engine = make_engine(migrated_postgres_url)
    with session(engine) as current:
        job = ended(current)
        flag, _ = report(current, job)
    for write in WRITERS:
        with Session(engine) as holder, Session(engine) as waiter:
            holder.execute(text("SELECT FROM flags, jobs FOR UPDATE"))
            waiter.execute(text("SET LOCAL lock_timeout = '10ms'"))
            with pytest.raises(OperationalError, match="lock timeout"):
                write(waiter, job, flag)
    with session(engine) as current:
        flags.change(current, flag.id, KNOWN, actor="ada", now=NOW)
    with Session(engine) as holder, Session(engine) as other:
        holder.execute(text("SELECT FROM flags FOR UPDATE"))
        assert flags.expired(other, now=NOW + SECOND)
        assert flags.expire(other, now=NOW + SECOND) == 0  # another process does it now
    engine.dispose()

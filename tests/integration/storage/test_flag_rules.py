"""The rules of flags in the database alone: what opens, renews, reopens, resolves and expires them.
On both databases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, text, update
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

import audit_log
import migrated_database
from gonogo.errors import FieldError
from gonogo.flakiness.flag_kinds import FlagKind
from gonogo_service.flags import store as flags
from gonogo_service.flags.api import FLAGS
from gonogo_service.flags.model import FlagRow
from gonogo_service.flags.noun import FlagState
from gonogo_service.flags.store import Outdated
from gonogo_service.jobs import closing
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.engine import make_engine, session
from gonogo_service.kit.database.ids import new_id
from gonogo_service.kit.database.states import JobState
from gonogo_service.kit.outbox import outbox
from gonogo_service.tests.variants import Variant
from job_flow import new_job

NOW = utcnow()
SECOND = timedelta(seconds=1)
UNKNOWN = "01900000-0000-7000-8000-000000000000"
HOLLOW = FlagKind.passes_by_tolerance


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    """A migrated database."""
    yield from migrated_database.migrated(request, tmp_path_factory)


@pytest.fixture
def current(engine: Engine) -> Iterator[Session]:
    """One write transaction, rolled back."""
    with migrated_database.back(engine) as transaction:
        yield transaction


def ended(current: Session, build: int = 1, branch: str = "main", at: Any = NOW) -> JobRow:
    """Store an ended job of a build."""
    new = new_job(1, build=f"b{build}", build_sequence=build, branch=branch)
    job = current.get_one(JobRow, jobs.create(current, new, now=at).id)
    job.state, job.finished_at, job.done = JobState.finished, at, 1
    job.counts = {"pass": 1}
    return job


def report(
    current: Session, job: JobRow, evidence: str = "seen", kind: FlagKind = HOLLOW, at: Any = NOW
) -> tuple[FlagRow, bool]:
    """Store a finding of a job."""
    return flags.upsert(current, FlagRow.finding(kind, job, {"words": evidence}), now=at)


def topics(current: Session) -> list[str]:
    """Return the topics of the messages about flags."""
    due = outbox.due(current, topics=["flag.opened", "flag.resolved"], now=NOW + 9 * SECOND)
    return [message.topic for message in due]


def audited(current: Session, action: str) -> list[Any]:
    """Return the details of the audit's entries of an action, which a commit would write."""
    current.dispatch.before_commit(current)
    return [entry.detail for entry in audit_log.entries(current, action=action)]


def test_the_first_finding_opens_a_flag_and_tells_it_once(current: Session) -> None:
    job = ended(current)
    flag, opened = report(current, job)
    assert opened
    assert (flag.state, flag.version, flag.jobs, flag.first_job, flag.opened_at) == (
        "open",
        1,
        1,
        job.id,
        NOW,
    )
    again, opened = report(current, job, at=NOW + SECOND)
    assert (again, opened) == (flag, False)  # judged anew, with nothing new
    better, opened = report(current, job, "seen better", at=NOW + SECOND)
    assert (better.version, better.jobs, opened) == (2, 1, False)
    assert (better.evidence["words"], better.updated_at) == ("seen better", NOW + SECOND)
    next_job = ended(current, 2)
    renewed, opened = report(current, next_job)
    assert (renewed.version, renewed.jobs, renewed.build, opened) == (3, 2, "b2", False)
    assert (renewed.first_job, renewed.last_job) == (job.id, next_job.id)
    with_history = flags.get(current, flag.id)
    assert with_history is not None
    assert [(e.what, e.before, e.after, e.actor, e.reason) for e in with_history.history] == [
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
    assert (flag.evidence["words"] == "again", opened) == (renewed, False)
    assert flag.jobs == 1 + renewed


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
    changed, opened = report(current, ended(current, build, branch, at), "again", kind, at)
    assert (opened, changed.state) == (reopened, "reopened" if reopened else "resolved")
    assert changed.version == (3 if reopened else 2)
    assert changed.opened_at == (at if reopened else NOW)
    assert topics(current)[2:] == (["flag.opened"] if reopened else [])


def test_evidence_without_its_job_counts(current: Session) -> None:
    job = ended(current, 2)
    report(current, job)
    finding = FlagRow.finding(HOLLOW, job, {"sentence": "imported"}, build="b1")
    finding.last_job = UNKNOWN
    assert flags.upsert(current, finding, now=NOW)[0].last_job == UNKNOWN


def test_a_flag_is_quiet_after_its_evidence_and_the_newest_job_of_its_variant(
    current: Session,
) -> None:
    first = ended(current)
    flag, _ = report(current, first)
    variant = Variant(flag.test_key, flag.branch, flag.arch, flag.board)
    assert [flag.quiet_after for flag in flags.active(current, variant)] == [first.id]
    second, elsewhere = ended(current, 2), ended(current, 2)
    elsewhere.board = "p150"
    current.flush()
    report(current, first, "judged anew")
    assert [flag.quiet_after for flag in flags.active(current, variant)] == [second.id]
    running = ended(current, 3)
    running.state = JobState.running
    report(current, first, "and again")
    assert [flag.quiet_after for flag in flags.active(current, variant)] == [second.id]
    for other in ({"board": "p150"}, {"arch": "blackhole"}, {"branch": "dev"}, {"test_key": "x"}):
        assert flags.active(current, Variant(**{**variant.__dict__, **other})) == []
    flags.change(current, flag.id, {"state": "resolved"}, actor="ada", now=NOW)
    assert flags.active(current, variant) == []


def test_the_open_ones_are_those_that_were_reopened_too(current: Session) -> None:
    job = ended(current)
    ids = {kind: report(current, job, kind=kind)[0].id for kind in list(FlagKind)[:3]}
    reopened, resolved, opened = ids.values()
    for flag_id, state in ((reopened, FlagState.reopened), (resolved, FlagState.resolved)):
        current.get_one(FlagRow, flag_id).state = state
    current.flush()

    def listed(**filters: Any) -> set[str]:
        return {flag.id for flag in FLAGS.page(current, **filters).items}

    assert listed(state="open") == {reopened, opened}
    assert listed(state="resolved") == {resolved}
    assert listed(job=job.id, build="b1", test=job.test_key) == set(ids.values())
    assert listed(job="nonsense") == listed(job=UNKNOWN) == set()
    assert listed(kind=next(iter(ids)).value) == {reopened}
    assert flags.get(current, "nonsense") is flags.get(current, UNKNOWN) is None


def test_a_change_by_hand_is_made_once_and_against_the_version_that_was_seen(
    current: Session,
) -> None:
    flag, _ = report(current, ended(current))
    fields = {
        "state": "acknowledged",
        "owner": "ada",
        "reason": "known",
        "expires": NOW + SECOND,
    }

    def change(version: int | None = None, **given: Any) -> Any:
        return flags.change(current, flag.id, given, actor="ada", version=version, now=NOW)

    with pytest.raises(Outdated) as outdated:
        change(2, **fields)
    assert (outdated.value.value, outdated.value.limit) == (2, 1)
    for name in ("owner", "reason", "expires"):
        with pytest.raises(FieldError, match=name):
            change(**{field: value for field, value in fields.items() if field != name})
    with pytest.raises(FieldError):
        change(**(fields | {"expires": NOW}))  # not in the future
    with pytest.raises(FieldError):
        change(expires=NOW + SECOND)  # only an acknowledgement expires
    with pytest.raises(FieldError):
        change(state="reopened")
    assert change(1, **fields).version == 2
    assert change(2, **fields).version == 2
    assert flags.change(current, UNKNOWN, fields, actor="ada") is None
    assert flags.change(current, "nonsense", fields, actor="ada") is None
    assert len(audited(current, "flag.changed")) == 1
    assert topics(current) == ["flag.opened"]
    resolved = change(state="resolved", reason="fixed")
    assert (resolved.version, resolved.expires_at, resolved.history[0].what) == (
        3,
        None,
        "resolved",
    )
    assert change(state="resolved", owner="bob").history[0].what == "changed"
    assert topics(current) == ["flag.opened", "flag.resolved"]
    # written by another process since it was read
    current.execute(update(FlagRow).values(version=9).execution_options(synchronize_session=False))
    with pytest.raises(Outdated):
        change(4, state="open")


def test_a_reopened_flag_that_is_set_open_stays_reopened(current: Session) -> None:
    flag, _ = report(current, ended(current))
    current.get_one(FlagRow, flag.id).state = FlagState.reopened
    current.flush()
    same = flags.change(current, flag.id, {"state": "open"}, actor="ada", now=NOW)
    assert same is not None
    assert (same.state, same.version) == ("reopened", 1)


@pytest.mark.parametrize(("seconds", "count"), [(0, 0), (1, 1)])
def test_an_acknowledgement_expires_at_its_end(current: Session, seconds: int, count: int) -> None:
    flag, _ = report(current, ended(current))
    fields = {
        "state": "acknowledged",
        "owner": "ada",
        "reason": "known",
        "expires": NOW + SECOND,
    }
    flags.change(current, flag.id, fields, actor="ada", now=NOW)
    at = NOW + seconds * SECOND
    assert flags.expired(current, now=at) is bool(count)
    assert flags.expire(current, now=at) == count
    changed = flags.get(current, flag.id)
    assert changed is not None
    assert (changed.state, changed.version) == (("open", 3) if count else ("acknowledged", 2))
    assert changed.expires_at == (None if count else NOW + SECOND)
    assert len(topics(current)) == 1 + count
    assert len(audited(current, "flag.expired")) == count


def test_a_quiet_flag_resolves_unless_it_changed_meanwhile(current: Session) -> None:
    flag, _ = report(current, ended(current))

    def resolve(version: int, flag_id: str = flag.id) -> bool:
        return flags.resolve(
            current, flag_id, version=version, why="quiet", detail={"runs": 9}, now=NOW
        )

    assert not resolve(2)
    assert not resolve(1, new_id())
    assert resolve(1)
    assert not resolve(2)
    entry = flag.history[0]
    assert (entry.what, entry.before, entry.actor, entry.reason, entry.detail) == (
        "resolved",
        "open",
        "background",
        "quiet",
        {"runs": 9},
    )
    assert audited(current, "flag.resolved") == [{"reason": "quiet", "runs": 9}]
    assert topics(current) == ["flag.opened", "flag.resolved"]


WRITERS: dict[str, Callable[[Session, JobRow, FlagRow], object]] = {
    "upsert": lambda current, job, flag: flags.upsert(
        current, FlagRow.finding(flag.kind, job, flag.evidence), now=NOW
    ),
    "change": lambda current, job, flag: flags.change(
        current, flag.id, {"owner": None}, actor="ada"
    ),
    "change_many": lambda current, job, flag: flags.change_many(
        current, [flag.id], {"owner": None}, actor="ada"
    ),
    "resolve": lambda current, job, flag: flags.resolve(
        current, flag.id, version=9, why="", detail={}, now=NOW
    ),
    "a job's end": lambda current, job, flag: closing.lock(current, job.id),
}
"""Each reads its row under the row's lock, and here finds nothing to write."""


def test_who_changes_a_flag_or_a_job_reads_it_under_its_lock(migrated_postgres_url: str) -> None:
    engine = make_engine(migrated_postgres_url)
    with session(engine) as current:
        job = ended(current)
        flag, _ = report(current, job)
    for write in WRITERS.values():
        with Session(engine) as holder, Session(engine) as waiter:
            holder.execute(text("SELECT FROM flags, jobs FOR UPDATE"))
            waiter.execute(text("SET LOCAL lock_timeout = '10ms'"))
            with pytest.raises(OperationalError, match="lock timeout"):
                write(waiter, job, flag)
    with session(engine) as current:
        fields = {
            "state": "acknowledged",
            "owner": "ada",
            "reason": "known",
            "expires": NOW + SECOND,
        }
        flags.change(current, flag.id, fields, actor="ada", now=NOW)
    with Session(engine) as holder, Session(engine) as other:
        holder.execute(text("SELECT FROM flags FOR UPDATE"))
        assert flags.expired(other, now=NOW + SECOND)
        assert flags.expire(other, now=NOW + SECOND) == 0  # another process does it now
    engine.dispose()

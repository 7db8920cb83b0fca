"""What must hold after a chaos run: the promises of docs/reliability.md, read from the database."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import psutil  # type: ignore[import-untyped]  # it ships no types
from sqlalchemy import func, select, text
from sqlalchemy.orm import Session

from benchmarks.chaos import processes
from benchmarks.chaos.load import TEST, WRONG, Accepted, Load
from benchmarks.chaos.post import FORGED_MS
from benchmarks.chaos.site import HOSTILE, HOSTS, Site
from benchmarks.chaos.witness import name_of
from gonogo.judging import inputs
from gonogo.spec.test_spec import TestSpec
from gonogo_storage.access import audit, audit_chain
from gonogo_storage.db.engine import reading
from gonogo_storage.db.states import CLOSED_CHUNK, OPEN_ATTEMPT, DeliveryState, JobState
from gonogo_storage.messages import leases
from gonogo_storage.rollups import rebuild
from gonogo_storage.tables import (
    AttemptRow,
    ChunkRow,
    DayRollupRow,
    DeliveryRow,
    DeviceRow,
    JobRow,
    JobTallyRow,
    OutboxRow,
    RolledRow,
    SeedResultRow,
    SeedSourceRow,
)

END_S = 180.0
"""Every job has ended this long after the last fault."""
WITHOUT_NUMBERS = {"error", "crash", "hang"}
"""Verdicts that say nothing about a kernel."""
RIGHT = {"pass", *WITHOUT_NUMBERS}
EMPTY_S = 60.0


@dataclass
class Found:
    """The figures of a run, and what is wrong."""

    jobs: Counter[str] = field(default_factory=Counter)
    seeds: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    given_up: Counter[str] = field(default_factory=Counter)
    """Why seeds have no numbers."""
    lost: int = 0
    doubled: int = 0
    deliveries: int = 0
    problems: list[str] = field(default_factory=list)

    def wrong(self, words: str) -> None:
        """Add a problem."""
        self.problems.append(words)


def wait_for_the_end(load: Load) -> None:
    """Wait until every accepted job has ended."""
    deadline = time.monotonic() + END_S
    while load.open_jobs() != 0 and time.monotonic() < deadline:
        load.site.restart_ended()
        time.sleep(0.2)


def of_jobs(site: Site, load: Load, found: Found) -> None:
    """Every accepted job has ended, in an honest state, with each seed once."""
    with reading(site.engine) as current:
        stored = {row.id: row for row in current.scalars(select(JobRow))}
        for job in load.accepted.values():
            row = stored.pop(job.id, None)
            if row is None:
                found.lost += job.count
                found.wrong(f"job {job.id} was accepted and is not stored")
                continue
            found.jobs[row.state] += 1
            _check_job(current, job, row, found, was_cancelled=job.id in load.cancelled)
        for row in stored.values():
            found.doubled += 1
            found.wrong(f"job {row.id} was not accepted, or twice ({row.state})")
        _check_nothing_open(current, found)
        _check_reasons(current, found)


def _check_job(
    current: Session, job: Accepted, row: JobRow, found: Found, *, was_cancelled: bool
) -> None:
    rows = current.execute(
        select(SeedResultRow.seed, SeedResultRow.repeat, SeedResultRow.verdict).where(
            SeedResultRow.job_id == job.id
        )
    ).all()
    seeds, verdicts = [seed for seed, _, _ in rows], Counter(str(verdict) for *_, verdict in rows)
    found.seeds += len(rows)
    found.verdicts += verdicts
    name = f"job {job.id} ({job.executor} {job.build}, seeds {job.start} to {job.count - 1})"
    if row.state not in (JobState.finished, JobState.cancelled):
        found.wrong(f"{name} is {row.state}: {row.error or row.waiting_reason}")
    if row.state == JobState.cancelled and not was_cancelled:
        found.wrong(f"{name} was cancelled by nobody")
    if row.state == JobState.cancelled and row.verdict == "pass":
        found.wrong(f"{name} was cancelled, and passes")
    required = set(range(job.start, job.start + job.count))
    if row.state != JobState.cancelled and not job.is_sequential:
        missing = required - set(seeds)
        found.lost += len(missing)
        if missing:
            found.wrong(f"{name} lacks {len(missing)} seeds")
    twice = len(rows) - len({(seed, repeat) for seed, repeat, _ in rows})
    counted = (row.done, sum(row.counts.values()), Counter(row.counts))
    if twice or counted != (len(rows), len(rows), verdicts):
        found.doubled += max(twice, abs(row.done - len(rows)), 1)
        found.wrong(f"{name} has {len(rows)} rows, and counts {counted}")
    if job.build == WRONG:
        if verdicts["pass"] or row.verdict == "pass":
            found.wrong(f"{name} is of a wrong build, and passes: {dict(verdicts)}")
    elif set(verdicts) - RIGHT or row.verdict not in {None, *RIGHT}:
        found.wrong(f"{name} is of a right build: {row.verdict}, {dict(verdicts)}")


def _check_reasons(current: Session, found: Found) -> None:
    query = select(SeedResultRow.verdict, SeedResultRow.message)
    query = query.where(SeedResultRow.verdict.in_(WITHOUT_NUMBERS))
    for verdict, message in current.execute(query):
        found.given_up[f"{verdict}: {str(message).splitlines()[0][:120]}"] += 1


def _check_nothing_open(current: Session, found: Found) -> None:
    open_rows: Mapping[str, Any] = {
        "jobs": (JobRow, JobRow.state.not_in([s.value for s in JobState if s.final])),
        "chunks": (ChunkRow, ChunkRow.state.not_in(CLOSED_CHUNK)),
        "attempts": (AttemptRow, AttemptRow.state.in_(OPEN_ATTEMPT)),
    }
    for name, (table, condition) in open_rows.items():
        count = current.scalar(select(func.count()).select_from(table).where(condition))
        if count:
            found.wrong(f"{count} {name} never ended")


def of_hosts(site: Site, load: Load, found: Found) -> None:
    """Every seed is its own host's, as the kernels of the hosts have written down themselves."""
    lines = {host: _lines(site.witness(host)) for host in HOSTS}
    test = TestSpec.parse(TEST)
    witnessed = {job.id for job in load.accepted.values() if job.executor == "witness"}
    query = select(
        SeedResultRow.job_id,
        SeedResultRow.seed,
        SeedResultRow.verdict,
        SeedResultRow.duration_ms,
        SeedSourceRow.device,
        AttemptRow.device.label("attempt_device"),
        AttemptRow.host,
    ).join(
        SeedSourceRow,
        (SeedSourceRow.job_id == SeedResultRow.job_id)
        & (SeedSourceRow.number == SeedResultRow.source),
    )
    query = query.join(AttemptRow, AttemptRow.id == SeedSourceRow.attempt_id, isouter=True)
    wrong_sources: set[tuple[Any, ...]] = set()
    """One message for all seeds of an attempt."""
    with reading(site.engine) as current:
        for row in current.execute(query):
            name = f"seed {row.seed} of job {row.job_id}"
            if row.duration_ms == FORGED_MS or row.host == HOSTILE:
                found.wrong(f"{name} is forged")
            if row.verdict in WITHOUT_NUMBERS:
                continue
            source = row.job_id, row.device, row.host
            if source in wrong_sources:
                continue
            if row.device != row.attempt_device or not str(row.device).startswith(f"{row.host}/"):
                found.wrong(f"{name} is of {row.device}, its attempt of {row.attempt_device}")
                wrong_sources.add(source)
            if row.job_id in witnessed:
                x = inputs.quantise(test, inputs.generate(test, row.seed))["x"]
                if name_of(x) not in lines.get(str(row.host), set()):
                    found.wrong(f"{name} never ran on {row.host}")
                    wrong_sources.add(source)
        bad = current.scalars(select(DeviceRow.identity).where(DeviceRow.health == "bad")).all()
        if bad:
            found.wrong(f"devices were called bad: {', '.join(bad)}")


def _lines(path: Any) -> set[str]:
    return set(path.read_text().split()) if path.exists() else set()


def of_webhooks(site: Site, load: Load, found: Found) -> None:
    """Every due webhook was delivered at least once; what waits for its next try is sent now."""
    deadline = time.monotonic() + EMPTY_S
    with site.client() as client:
        while True:
            with reading(site.engine) as current:
                left = _undelivered(current)
                unsent = current.scalar(
                    select(func.count()).select_from(OutboxRow).where(OutboxRow.done_at.is_(None))
                )
            if not left and not unsent:
                break
            if time.monotonic() > deadline:
                found.wrong(f"{len(left)} webhooks and {unsent} outbox messages were never sent")
                break
            for webhook, delivery in left:
                client.post(f"/webhooks/{webhook}/deliveries/{delivery}:replay")
            time.sleep(0.5)
    received = Counter(site.received.read_text().split())
    if forged := received.pop("forged", 0):
        found.wrong(f"{forged} webhooks had a wrong signature")
    with reading(site.engine) as current:
        sent = current.execute(select(DeliveryRow.id, DeliveryRow.type, DeliveryRow.payload)).all()
    found.deliveries = len(sent)
    if lacking := [row.id for row in sent if row.id not in received]:
        found.wrong(f"{len(lacking)} webhooks count as delivered and never arrived")
    told = {str(row.payload["data"]["id"]) for row in sent if row.type == "job.finished"}
    if silent := set(load.accepted) - told:
        found.wrong(f"{len(silent)} jobs ended without a webhook: {sorted(silent)[:3]}")


def _undelivered(current: Session) -> list[tuple[str, str]]:
    query = select(DeliveryRow.webhook_id, DeliveryRow.id)
    rows = current.execute(query.where(DeliveryRow.state != DeliveryState.delivered.value))
    return [(str(webhook), str(delivery)) for webhook, delivery in rows]


def of_rollups(site: Site, load: Load, found: Found) -> None:
    """The sums that ingest wrote equal those of a rebuild."""
    with reading(site.engine) as current:
        if jobs := rebuild.behind(current):
            found.wrong(f"the roll-ups lack rows of {len(jobs)} jobs")
    before = _sums(site)
    rebuild.rebuild(site.engine)
    after = _sums(site)
    for key in sorted(before.keys() | after.keys(), key=str):
        if before.get(key) != after.get(key):
            found.wrong(f"the roll-up {key} is {before.get(key)}, rebuilt {after.get(key)}")


def _sums(site: Site) -> dict[Any, Any]:
    sums = {}
    with reading(site.engine) as current:
        for table in (DayRollupRow, JobTallyRow, RolledRow):
            keys = list(table.__table__.primary_key)
            for row in current.scalars(select(table).where(table.shadow.is_(False))):
                values = {
                    column.key: getattr(row, column.key) for column in table.__table__.columns
                }
                sums[table.__tablename__, *(values[key.key] for key in keys)] = values
    return sums


def of_audit(site: Site, load: Load, found: Found) -> None:
    """The audit is a whole chain, and has every accepted submission."""

    def entries() -> Iterator[Mapping[str, Any]]:
        last = 0
        while True:
            with reading(site.engine) as current:
                some = audit.export(current, after=last)
            if not some:
                return
            yield from some
            last = some[-1]["number"]

    told = audit_chain.verify(entries())
    if told.problem is not None:
        found.wrong(f"the audit: {told.problem}")
    submitted = {entry["subject"] for entry in entries() if entry["action"] == "job.submitted"}
    if missing := set(load.accepted) - submitted:
        found.wrong(f"the audit lacks {len(missing)} submissions")


def of_queues(site: Site, found: Found) -> None:
    """Nothing is left in the broker: no queue has a message, and none is unacknowledged."""
    names = ["background", "heartbeat", "witness.wormhole.n150", "emulator.wormhole.n150"]

    def left() -> dict[str, int]:
        counts = {name: int(site.redis.llen(name)) for name in names}
        counts["unacked"] = int(site.redis.hlen("unacked"))
        return {name: count for name, count in counts.items() if count}

    deadline = time.monotonic() + EMPTY_S
    while left() and time.monotonic() < deadline:
        time.sleep(0.2)
    if messages := left():
        found.wrong(f"the broker still has {messages}")


def of_processes(site: Site, found: Found) -> None:
    """Stop everything in order: nothing that was started runs on, and no lock is held."""
    for child in (*site.workers, *site.backgrounds, site.api, site.receiver):
        site.stop(child)
    servers = [
        server.process.pid for server in (site.broker, site.postgres) if server and server.process
    ]
    known = [*servers]
    for pid in servers:
        known += [process.pid for process in psutil.Process(pid).children(recursive=True)]
    left = processes.left_over(known)
    deadline = time.monotonic() + 5
    while left and time.monotonic() < deadline:
        time.sleep(0.1)
        left = processes.left_over(known)
    for process in left:
        found.wrong(f"process {process.pid} is left: {' '.join(process.cmdline())[:200]}")
    processes.end(left)
    _check_locks(site, found)


def _check_locks(site: Site, found: Found) -> None:
    for host in HOSTS:
        for path in (site.folder / host / "locks").glob("*"):
            if path.suffix not in (".lock", ".claim"):
                continue
            handle = os.open(path, os.O_RDWR)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                found.wrong(f"{path.name} of {host} is still locked")
            finally:
                os.close(handle)
    with reading(site.engine) as current:
        if held := leases.holders(current):
            found.wrong(f"leases are still held: {held}")
        if site.is_postgres:
            query = text(
                "SELECT count(*) FROM pg_locks WHERE pid <> pg_backend_pid()"
                " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            )
            if count := current.scalar(query):
                found.wrong(f"{count} locks are left in PostgreSQL")
    if not site.is_postgres:
        lock = sqlite3.connect(site.folder / "gonogo.sqlite", timeout=1, isolation_level=None)
        try:
            lock.execute("BEGIN IMMEDIATE")
            lock.execute("ROLLBACK")
        except sqlite3.OperationalError as problem:
            found.wrong(f"the database is still locked: {problem}")
        finally:
            lock.close()


CHECKS: tuple[Callable[[Site, Load, Found], None], ...] = (
    of_jobs,
    of_hosts,
    of_webhooks,
    of_rollups,
    of_audit,
)


def all_of_them(site: Site, load: Load) -> Found:
    """Check everything; one check that fails to run is a problem, and the others still run."""
    found = Found()
    for check in CHECKS:
        try:
            check(site, load, found)
        except Exception as problem:
            found.wrong(f"{check.__name__} could not be checked: {problem!r:.500}")
    of_queues(site, found)
    of_processes(site, found)
    found.problems += site.problems
    return found

"""Checks after a chaos run: the promises of docs/reliability.md, read from the database."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from gonogo_service.results.rollups import rebuild
from gonogo_service.results.rows import (
    DayRollupRow,
    JobTallyRow,
    RolledRow,
    SeedResultRow,
    SeedSourceRow,
)
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from benchmarks.chaos import leftovers
from benchmarks.chaos.load import TEST, WRONG, Accepted, Load
from benchmarks.chaos.post import FORGED_MS
from benchmarks.chaos.result import Result
from benchmarks.chaos.site import HOSTILE, HOSTS, Site
from benchmarks.chaos.witness import name_of
from gonogo.judging import inputs
from gonogo.spec.test_spec import TestSpec
from gonogo_service.devices.model import DeviceRow
from gonogo_service.jobs.model import AttemptRow, ChunkRow, JobRow
from gonogo_service.kit.audit import AuditRow
from gonogo_service.kit.database.engine import reading
from gonogo_service.kit.database.states import CLOSED_CHUNK, OPEN_ATTEMPT, DeliveryState, JobState
from gonogo_service.kit.outbox.model import OutboxRow
from gonogo_service.webhooks.model import DeliveryRow

END_S = 180.0
"""Every job has ended this long after the last fault."""
WITHOUT_NUMBERS = {"error", "crash", "hang"}
"""Verdicts that say nothing about a kernel."""
RIGHT = {"pass", *WITHOUT_NUMBERS}
EMPTY_S = 60.0
REPLAY_S = 5.0
"""Between two replays of a message: each makes it due now, and a background process whose clock is
a second behind finds it due a second later, never if it is replayed more often."""


def wait_for_the_end(load: Load) -> None:
    """Wait until every accepted job has ended."""
    deadline = time.monotonic() + END_S
    while load.open_jobs() != 0 and time.monotonic() < deadline:
        load.site.restart_ended()
        time.sleep(0.2)


def of_jobs(site: Site, load: Load, result: Result) -> None:
    """Every accepted job has ended, in an honest state, with each seed once."""
    with reading(site.engine) as current:
        stored = {row.id: row for row in current.scalars(select(JobRow))}
        for job in load.accepted.values():
            row = stored.pop(job.id, None)
            if row is None:
                result.lost += job.count
                result.wrong(f"job {job.id} was accepted and is not stored")
                continue
            result.jobs[row.state] += 1
            _check_job(current, job, row, result, was_cancelled=job.id in load.cancelled)
        for row in stored.values():
            result.doubled += 1
            result.wrong(f"job {row.id} was not accepted, or twice ({row.state})")
        _check_nothing_open(current, result)
        _check_reasons(current, result)


def _check_job(
    current: Session, job: Accepted, row: JobRow, result: Result, *, was_cancelled: bool
) -> None:
    rows = current.execute(
        select(SeedResultRow.seed, SeedResultRow.repeat, SeedResultRow.verdict).where(
            SeedResultRow.job_id == job.id
        )
    ).all()
    seeds, verdicts = [seed for seed, _, _ in rows], Counter(str(verdict) for *_, verdict in rows)
    result.seeds += len(rows)
    result.verdicts += verdicts
    name = f"job {job.id} ({job.executor} {job.build}, seeds {job.start} to {job.count - 1})"
    if row.state not in (JobState.finished, JobState.cancelled):
        result.wrong(f"{name} is {row.state}: {row.error or row.waiting_reason}")
    if row.state == JobState.cancelled and not was_cancelled:
        result.wrong(f"{name} was cancelled by nobody")
    if row.state == JobState.cancelled and row.verdict == "pass":
        result.wrong(f"{name} was cancelled, and passes")
    required = set(range(job.start, job.start + job.count))
    if row.state != JobState.cancelled and not job.is_sequential:
        missing = required - set(seeds)
        result.lost += len(missing)
        if missing:
            result.wrong(f"{name} lacks {len(missing)} seeds")
    twice = len(rows) - len({(seed, repeat) for seed, repeat, _ in rows})
    counted = (row.done, sum(row.counts.values()), Counter(row.counts))
    if twice or counted != (len(rows), len(rows), verdicts):
        result.doubled += max(twice, abs(row.done - len(rows)), 1)
        result.wrong(f"{name} has {len(rows)} rows, and counts {counted}")
    if job.build == WRONG:
        if verdicts["pass"] or row.verdict == "pass":
            result.wrong(f"{name} is of a wrong build, and passes: {dict(verdicts)}")
    elif set(verdicts) - RIGHT or row.verdict not in {None, *RIGHT}:
        result.wrong(f"{name} is of a right build: {row.verdict}, {dict(verdicts)}")


def _check_reasons(current: Session, result: Result) -> None:
    query = select(SeedResultRow.verdict, SeedResultRow.message)
    query = query.where(SeedResultRow.verdict.in_(WITHOUT_NUMBERS))
    for verdict, message in current.execute(query):
        result.given_up[f"{verdict}: {str(message).splitlines()[0][:120]}"] += 1


def _check_nothing_open(current: Session, result: Result) -> None:
    open_rows: Mapping[str, Any] = {
        "jobs": (JobRow, JobRow.state.not_in([s.value for s in JobState if s.final])),
        "chunks": (ChunkRow, ChunkRow.state.not_in(CLOSED_CHUNK)),
        "attempts": (AttemptRow, AttemptRow.state.in_(OPEN_ATTEMPT)),
    }
    for name, (table, condition) in open_rows.items():
        count = current.scalar(select(func.count()).select_from(table).where(condition))
        if count:
            result.wrong(f"{count} {name} never ended")


def of_hosts(site: Site, load: Load, result: Result) -> None:
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
                result.wrong(f"{name} is forged")
            if row.verdict in WITHOUT_NUMBERS:
                continue
            source = row.job_id, row.device, row.host
            if source in wrong_sources:
                continue
            if row.device != row.attempt_device or not str(row.device).startswith(f"{row.host}/"):
                result.wrong(f"{name} is of {row.device}, its attempt of {row.attempt_device}")
                wrong_sources.add(source)
            if row.job_id in witnessed:
                x = inputs.quantise(test, inputs.generate(test, row.seed))["x"]
                if name_of(x) not in lines.get(str(row.host), set()):
                    result.wrong(f"{name} never ran on {row.host}")
                    wrong_sources.add(source)
        bad = current.scalars(select(DeviceRow.device).where(DeviceRow.health == "bad")).all()
        if bad:
            result.wrong(f"devices were called bad: {', '.join(bad)}")


def _lines(path: Any) -> set[str]:
    return set(path.read_text().split()) if path.exists() else set()


def of_webhooks(site: Site, load: Load, result: Result) -> None:
    """Every due webhook was delivered at least once; what waits for its next try is sent now."""
    deadline = time.monotonic() + EMPTY_S
    replayed: dict[str, float] = {}
    with site.client() as client:
        while True:
            with reading(site.engine) as current:
                left = _undelivered(current)
                unsent = current.scalar(
                    select(func.count()).select_from(OutboxRow).where(OutboxRow.due_at.is_not(None))
                )
            if not left and not unsent:
                break
            if time.monotonic() > deadline:
                result.wrong(f"{len(left)} webhooks and {unsent} outbox messages were never sent")
                break
            for webhook, delivery in left:
                if time.monotonic() - replayed.get(delivery, -REPLAY_S) >= REPLAY_S:
                    replayed[delivery] = time.monotonic()
                    client.post(f"/webhooks/{webhook}/deliveries/{delivery}:replay")
            time.sleep(0.5)
    received = Counter(site.received.read_text().split())
    if forged := received.pop("forged", 0):
        result.wrong(f"{forged} webhooks had a wrong signature")
    with reading(site.engine) as current:
        sent = current.execute(select(DeliveryRow.id, DeliveryRow.type, DeliveryRow.payload)).all()
    result.deliveries = len(sent)
    if lacking := [row.id for row in sent if row.id not in received]:
        result.wrong(f"{len(lacking)} webhooks count as delivered and never arrived")
    announced = {str(row.payload["data"]["id"]) for row in sent if row.type == "job.finished"}
    if silent := set(load.accepted) - announced:
        result.wrong(f"{len(silent)} jobs ended without a webhook: {sorted(silent)[:3]}")


def _undelivered(current: Session) -> list[tuple[str, str]]:
    query = select(DeliveryRow.webhook_id, DeliveryRow.id)
    rows = current.execute(query.where(DeliveryRow.state != DeliveryState.delivered.value))
    return [(str(webhook), str(delivery)) for webhook, delivery in rows]


def of_rollups(site: Site, load: Load, result: Result) -> None:
    """The sums that ingest wrote equal those of a rebuild."""
    with reading(site.engine) as current:
        if jobs := rebuild.behind(current):
            result.wrong(f"the roll-ups lack rows of {len(jobs)} jobs")
    before = _sums(site)
    rebuild.rebuild(site.engine)
    after = _sums(site)
    for key in sorted(before.keys() | after.keys(), key=str):
        if before.get(key) != after.get(key):
            result.wrong(f"the roll-up {key} is {before.get(key)}, rebuilt {after.get(key)}")


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


def of_audit(site: Site, load: Load, result: Result) -> None:
    """The audit has every accepted submission."""
    query = select(AuditRow.subject).where(AuditRow.action == "job.submitted")
    with reading(site.engine) as current:
        submitted = set(current.scalars(query))
    if missing := set(load.accepted) - submitted:
        result.wrong(f"the audit lacks {len(missing)} submissions")


CHECKS: tuple[Callable[[Site, Load, Result], None], ...] = (
    of_jobs,
    of_hosts,
    of_webhooks,
    of_rollups,
    of_audit,
)


def all_of_them(site: Site, load: Load) -> Result:
    """Check everything; one check that fails to run is a problem, and the others still run."""
    result = Result()
    for check in CHECKS:
        try:
            check(site, load, result)
        except Exception as problem:
            result.wrong(f"{check.__name__} could not be checked: {problem!r:.500}")
    leftovers.of_queues(site, result)
    leftovers.of_processes(site, result)
    result.problems += site.problems
    return result

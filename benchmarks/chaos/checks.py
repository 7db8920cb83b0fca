"""Checks after a chaos run: the promises of docs/reliability.md, read from the database."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

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
from gonogo_service.results.model import WHOLE, DailyRow, JobBlockRow, ResultRow, SourceRow
from gonogo_service.results.seeds import OF_SOURCE, SEED
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
        select(ResultRow.seed, ResultRow.repeat, ResultRow.seed_verdict).where(
            ResultRow.job_id == job.id, SEED
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
    query = select(ResultRow.seed_verdict, ResultRow.message)
    query = query.where(ResultRow.seed_verdict.in_(WITHOUT_NUMBERS), SEED)
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
        ResultRow.job_id,
        ResultRow.seed,
        ResultRow.seed_verdict.label("verdict"),
        ResultRow.duration_ms,
        SourceRow.device,
        AttemptRow.device.label("attempt_device"),
        AttemptRow.host,
    ).join(
        SourceRow,
        OF_SOURCE,
    )
    query = query.join(AttemptRow, AttemptRow.id == SourceRow.attempt_id, isouter=True).where(SEED)
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
    query = select(DeliveryRow.webhook, DeliveryRow.id)
    rows = current.execute(query.where(DeliveryRow.state != DeliveryState.delivered.value))
    return [(str(webhook), str(delivery)) for webhook, delivery in rows]


def of_sums(site: Site, load: Load, result: Result) -> None:
    """The sums of jobs and days are those of the rows."""
    row, block, daily = ResultRow, JobBlockRow, DailyRow
    by_job = select(row.job_id, row.seed_verdict, func.count()).where(SEED)
    of_job = select(block.job_id, block.verdict, func.sum(block.n)).where(block.output == WHOLE)
    of_test = select(JobRow.test_key, block.verdict, func.sum(block.n)).join(
        JobRow, (JobRow.id == block.job_id) & JobRow.reference.is_(None)
    )
    by_test = select(daily.test_key, daily.verdict, func.sum(daily.n)).where(daily.output == WHOLE)
    pairs = (
        (
            by_job.group_by(row.job_id, row.seed_verdict),
            of_job.group_by(block.job_id, block.verdict),
        ),
        (
            of_test.where(block.output == WHOLE).group_by(JobRow.test_key, block.verdict),
            by_test.group_by(daily.test_key, daily.verdict),
        ),
    )
    with reading(site.engine) as current:
        for expected, stored in pairs:
            by_rows, by_sums = (
                {(str(key), str(verdict)): int(n) for key, verdict, n in current.execute(query)}
                for query in (expected, stored)
            )
            for key in sorted(by_rows.keys() | by_sums.keys()):
                if by_rows.get(key) != by_sums.get(key):
                    result.wrong(f"the sum {key} is {by_sums.get(key)}, not {by_rows.get(key)}")


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
    of_sums,
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

"""Checks after a chaos run: the promises of docs/reliability.md, read from the database."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session
from standardwebhooks import Webhook

from benchmarks.chaos.faults import FORGED_MS
from benchmarks.chaos.load import WRONG, Accepted, Load
from benchmarks.chaos.site import HOSTILE, HOSTS, QUEUES, Site
from benchmarks.chaos.witness import name_of
from gonogo.judging import inputs
from gonogo.spec.test_spec import TestSpec
from gonogo_service.devices.model import DeviceRow
from gonogo_service.jobs.model import AttemptRow, ChunkRow, JobRow
from gonogo_service.kit.audit import AuditRow
from gonogo_service.kit.database.engine import reading
from gonogo_service.kit.database.states import CLOSED_CHUNK, OPEN_ATTEMPT, DeliveryState, JobState
from gonogo_service.kit.outbox import leases
from gonogo_service.kit.outbox.model import OutboxRow
from gonogo_service.results.model import WHOLE, DailyRow, JobBlockRow, ResultRow, SourceRow
from gonogo_service.results.seeds import OF_SOURCE, SEED
from gonogo_service.webhooks.model import DeliveryRow
from running_service import TINY

WITHOUT_NUMBERS = {"error", "crash", "hang"}
"""Verdicts that say nothing about a kernel."""
RIGHT = {"pass", *WITHOUT_NUMBERS}
EMPTY_S = 60.0
"""Queues and webhooks are empty after this time."""
REPLAY_S = 5.0
"""Between two replays of a message: each makes it due now, and a background process whose clock is
a second behind finds it due a second later, never if it is replayed more often."""


@dataclass
class Result:
    """The figures of a run, and what is wrong."""

    jobs: Counter[str] = field(default_factory=Counter)
    verdicts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    """Why seeds have no numbers."""
    lost: int = 0
    doubled: int = 0
    deliveries: int = 0
    problems: list[str] = field(default_factory=list)


def check(site: Site, load: Load) -> Result:
    """Check everything; one check that fails to run is a problem, and the others still run."""
    result = Result()
    for promise in (_jobs, _hosts, _webhooks, _sums, _queues, _processes):
        try:
            promise(site, load, result)
        except Exception as problem:
            result.problems.append(f"{promise.__name__} could not be checked: {problem!r:.500}")
    result.problems += site.problems
    return result


def _jobs(site: Site, load: Load, result: Result) -> None:
    """Every accepted job is in the audit and has ended, in an honest state, each seed once."""
    wrong = result.problems.append
    with reading(site.engine) as current:
        stored = {row.id: row for row in current.scalars(select(JobRow))}
        for job in load.accepted.values():
            if (row := stored.pop(job.id, None)) is None:
                result.lost += job.count
                wrong(f"job {job.id} was accepted and is not stored")
                continue
            result.jobs[row.state] += 1
            _check_job(current, job, row, result, was_canceled=job.id in load.canceled)
        for row in stored.values():
            result.doubled += 1
            wrong(f"job {row.id} was not accepted, or twice ({row.state})")
        query = select(AuditRow.subject).where(AuditRow.action == "job.submitted")
        if missing := set(load.accepted) - set(current.scalars(query)):
            wrong(f"the audit lacks {len(missing)} submissions")
        final = [state.value for state in JobState if state.final]
        for name, table, condition in (
            ("jobs", JobRow, JobRow.state.not_in(final)),
            ("chunks", ChunkRow, ChunkRow.state.not_in(CLOSED_CHUNK)),
            ("attempts", AttemptRow, AttemptRow.state.in_(OPEN_ATTEMPT)),
        ):
            if count := current.scalar(select(func.count()).select_from(table).where(condition)):
                wrong(f"{count} {name} never ended")
        reasons = select(ResultRow.seed_verdict, ResultRow.message)
        for verdict, message in current.execute(
            reasons.where(ResultRow.seed_verdict.in_(WITHOUT_NUMBERS), SEED)
        ):
            result.reasons[f"{verdict}: {str(message).splitlines()[0][:80]}"] += 1


def _check_job(
    current: Session, job: Accepted, row: JobRow, result: Result, *, was_canceled: bool
) -> None:
    columns = ResultRow.seed, ResultRow.repeat, ResultRow.seed_verdict
    rows = current.execute(select(*columns).where(ResultRow.job_id == job.id, SEED)).all()
    verdicts = Counter(str(verdict) for *_, verdict in rows)
    result.verdicts += verdicts

    def wrong(sentence: str) -> None:
        name = f"{job.executor} {job.build}, {job.count} seeds from {job.start}"
        result.problems.append(f"job {job.id} ({name}) {sentence}")

    if row.state == JobState.cancelled:
        if not was_canceled or row.verdict == "pass":
            wrong(f"was canceled, with {row.verdict}, {'as' if was_canceled else 'not'} asked")
    elif row.state != JobState.finished:
        wrong(f"is {row.state}: {row.error or row.waiting_reason}")
    elif not job.is_sequential:
        missing = set(range(job.start, job.start + job.count)) - {seed for seed, *_ in rows}
        result.lost += len(missing)
        if missing:
            wrong(f"lacks {len(missing)} seeds")
    twice = len(rows) - len({(seed, repeat) for seed, repeat, _ in rows})
    counted = (row.done, sum(row.counts.values()), Counter(row.counts))
    if twice or counted != (len(rows), len(rows), verdicts):
        result.doubled += max(twice, abs(row.done - len(rows)), 1)
        wrong(f"has {len(rows)} rows, and counts {counted}")
    if job.build == WRONG and (verdicts["pass"] or row.verdict == "pass"):
        wrong(f"is of a wrong build, and passes: {dict(verdicts)}")
    if job.build != WRONG and (set(verdicts) - RIGHT or row.verdict not in {None, *RIGHT}):
        wrong(f"is of a right build: {row.verdict}, {dict(verdicts)}")


def _hosts(site: Site, load: Load, result: Result) -> None:
    """Every seed is its own host's, as the kernels of the hosts have written down themselves."""
    paths = {host: site.witness(host) for host in HOSTS}
    lines = {h: set(path.read_text().split()) for h, path in paths.items() if path.exists()}
    test = TestSpec.parse(TINY)
    columns = ResultRow.job_id, ResultRow.seed, ResultRow.duration_ms, SourceRow.device
    query = (
        select(*columns, ResultRow.seed_verdict.label("verdict"))
        .add_columns(AttemptRow.device.label("attempt_device"), AttemptRow.host)
        .join(SourceRow, OF_SOURCE)
        .join(AttemptRow, AttemptRow.id == SourceRow.attempt_id, isouter=True)
        .where(SEED)
    )
    wrong: dict[tuple[Any, ...], str] = {}
    """One message for all seeds of an attempt."""
    with reading(site.engine) as current:
        for row in current.execute(query):
            name, source = (
                f"seed {row.seed} of job {row.job_id}",
                (row.job_id, row.device, row.host),
            )
            if row.duration_ms == FORGED_MS or row.host == HOSTILE:
                wrong[name,] = f"{name} is forged"
            if row.verdict in WITHOUT_NUMBERS or source in wrong:
                continue
            if row.device != row.attempt_device or not str(row.device).startswith(f"{row.host}/"):
                wrong[source] = f"{name} is of {row.device}, its attempt of {row.attempt_device}"
            job = load.accepted.get(row.job_id)
            if job is not None and job.executor == "witness":
                x = inputs.quantise(test, inputs.generate(test, row.seed))["x"]
                if name_of(x) not in lines.get(str(row.host), set()):
                    wrong[source] = f"{name} never ran on {row.host}"
        result.problems += wrong.values()
        bad = current.scalars(select(DeviceRow.device).where(DeviceRow.health == "bad")).all()
        result.problems += [f"{device} was called bad" for device in bad]


def _webhooks(site: Site, load: Load, result: Result) -> None:
    """Every due webhook was delivered at least once; what waits for its next try is sent now."""
    deadline = time.monotonic() + EMPTY_S
    replayed: dict[str, float] = {}
    waiting = select(DeliveryRow.webhook, DeliveryRow.id)
    waiting = waiting.where(DeliveryRow.state != DeliveryState.delivered.value)
    unsent = select(func.count()).select_from(OutboxRow).where(OutboxRow.due_at.is_not(None))
    with site.client() as client:
        while True:
            with reading(site.engine) as current:
                left, messages = current.execute(waiting).all(), current.scalar(unsent)
            if not left and not messages:
                break
            if time.monotonic() > deadline:
                result.problems.append(f"{len(left)} webhooks and {messages} messages never sent")
                break
            for webhook, delivery in left:
                if time.monotonic() - replayed.get(delivery, -REPLAY_S) >= REPLAY_S:
                    replayed[delivery] = time.monotonic()
                    client.post(f"/webhooks/{webhook}/deliveries/{delivery}:replay")
            time.sleep(0.5)
    received, signed = set(), Webhook(site.webhook_secret)
    for got in (got for receiver in site.receivers for got in receiver.got):
        name, at = got.headers["webhook-id"], int(got.headers["webhook-timestamp"])
        signature = signed.sign(name, datetime.fromtimestamp(at, UTC), got.body.decode())
        if signature not in got.headers["webhook-signature"].split():
            result.problems.append(f"webhook {name} has a wrong signature")
        received.add(name)
    with reading(site.engine) as current:
        sent = current.execute(select(DeliveryRow.id, DeliveryRow.type, DeliveryRow.payload)).all()
    result.deliveries = len(sent)
    announced = {str(row.payload["data"]["id"]) for row in sent if row.type == "job.finished"}
    for count, sentence in (
        (sum(row.id not in received for row in sent), "webhooks count as sent and never arrived"),
        (len(set(load.accepted) - announced), "jobs ended without a webhook"),
    ):
        if count:
            result.problems.append(f"{count} {sentence}")


def _sums(site: Site, load: Load, result: Result) -> None:
    """The sums of jobs and days are those of the rows."""
    row, block, day = ResultRow, JobBlockRow, DailyRow
    of_block = (JobRow.id == block.job_id) & JobRow.reference.is_(None) & (block.output == WHOLE)
    by_rows = select(row.job_id, row.seed_verdict, func.count()).where(SEED)
    by_jobs = select(block.job_id, block.verdict, func.sum(block.n)).where(block.output == WHOLE)
    by_tests = select(JobRow.test_key, block.verdict, func.sum(block.n)).join(JobRow, of_block)
    by_days = select(day.test_key, day.verdict, func.sum(day.n)).where(day.output == WHOLE)
    with reading(site.engine) as current:
        of_rows, of_jobs, of_tests, of_days = (
            {
                (str(key), str(verdict)): int(n)
                for key, verdict, n in current.execute(query.group_by(*columns))
            }
            for query, *columns in (
                (by_rows, row.job_id, row.seed_verdict),
                (by_jobs, block.job_id, block.verdict),
                (by_tests, JobRow.test_key, block.verdict),
                (by_days, day.test_key, day.verdict),
            )
        )
    for expected, stored in ((of_rows, of_jobs), (of_tests, of_days)):
        for key in sorted(expected.keys() | stored.keys()):
            if expected.get(key) != stored.get(key):
                sentence = f"the sum {key} is {stored.get(key)}, not {expected.get(key)}"
                result.problems.append(sentence)


def _queues(site: Site, load: Load, result: Result) -> None:
    """Nothing is left in the broker's queues."""
    deadline = time.monotonic() + EMPTY_S
    while any(site.redis.llen(name) for name in QUEUES):
        if time.monotonic() > deadline:
            result.problems.append("the broker still has messages")
            break
        time.sleep(0.2)


def _processes(site: Site, load: Load, result: Result) -> None:
    """Stop everything in order: nothing that was started runs on, and no lease is held."""
    result.problems += [f"process {process.pid} was left" for process in site.stop_all()]
    with reading(site.engine) as current:
        if holders := leases.holders(current):
            result.problems.append(f"leases are still held: {holders}")

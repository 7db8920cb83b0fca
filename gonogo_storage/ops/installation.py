"""Facts about an installation from its database: clock, limits, processes, hosts, backlogs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import func, select, text
from sqlalchemy.orm import Session

from gonogo_storage.access import hosts
from gonogo_storage.db.dialect import database_time
from gonogo_storage.db.encoding import utcnow
from gonogo_storage.db.engine import is_postgres
from gonogo_storage.devices import workers
from gonogo_storage.messages import leases
from gonogo_storage.ops import metric_reads
from gonogo_storage.ops.metric_reads import PRESENCE
from gonogo_storage.tables import CiRuleRow, WorkerRow


@dataclass(frozen=True)
class SilentHost:
    """A host that was heard of, and isn't any more."""

    name: str
    heard_at: datetime


@dataclass(frozen=True)
class Facts:
    """An installation as its database shows it."""

    clock_s: float
    """Seconds since the epoch by the database's clock."""
    limits: dict[str, str]
    """PostgreSQL's settings that bound statements; empty on SQLite."""
    version: int | None
    """PostgreSQL's major version."""
    connections: tuple[int, int] | None
    """PostgreSQL's open connections, and the most that it takes."""
    background: int
    """Live background processes."""
    duties: tuple[str, ...]
    """Duties that a process holds."""
    waiting: dict[str, float]
    """Seconds that the oldest chunk waits, by queue."""
    unserved: tuple[str, ...]
    """Queues with chunks and without a worker."""
    outbox_s: float
    """Age of the oldest message in the outbox."""
    webhook_lag_s: float
    deliveries: int
    ingest_lag_s: float
    rules: int
    """Rules about incoming deliveries."""
    versions: dict[str, int]
    """Live workers by version."""
    silent: tuple[SilentHost, ...]
    skewed: dict[str, float]
    """Hosts whose clock is wrong, with the seconds that it is ahead."""
    refused: dict[str, int]
    """Messages that were refused, by host."""


LIMITS = ("statement_timeout", "idle_in_transaction_session_timeout")
SILENT_S = 900.0
SKEW_S = 10.0
_LIVE = timedelta(seconds=workers.TIMEOUT_S)


def read(session: Session, *, heartbeat_timeout_s: float, now: datetime | None = None) -> Facts:
    """Read the facts."""
    now = now or utcnow()
    numbers = metric_reads.numbers(session, heartbeat_timeout_s=heartbeat_timeout_s, now=now)
    known = [host for host in hosts.list_(session).items if host.revoked_at is None]
    heard = select(WorkerRow.version, func.count()).where(WorkerRow.heard_at > now - _LIVE)
    refused: Counter[str] = Counter()
    for (sender, _), count in numbers.refused.items():
        refused[sender] += count
    postgres = is_postgres(session)
    return Facts(
        clock_s=database_time(session),
        limits={name: _setting(session, name) for name in LIMITS} if postgres else {},
        version=int(_setting(session, "server_version_num")) // 10_000 if postgres else None,
        connections=_connections(session) if postgres else None,
        background=numbers.background,
        duties=tuple(name for name in leases.holders(session) if not name.startswith(PRESENCE)),
        waiting={queue: age for queue, age in numbers.queue_age_s.items() if age},
        unserved=tuple(
            queue
            for queue, number in numbers.queue_workers.items()
            if not number and numbers.queue_age_s.get(queue)
        ),
        outbox_s=numbers.outbox_age_s,
        webhook_lag_s=numbers.webhook_lag_s,
        deliveries=numbers.deliveries,
        ingest_lag_s=numbers.ingest_lag_s,
        rules=_count(session, CiRuleRow, archived_at=None),
        versions={
            str(version or "unknown"): number
            for version, number in session.execute(heard.group_by(WorkerRow.version))
        },
        silent=tuple(
            SilentHost(host.name, host.heard_at)
            for host in known
            if host.heard_at is not None and (now - host.heard_at).total_seconds() > SILENT_S
        ),
        skewed={
            host.name: host.clock_skew_s
            for host in known
            if host.clock_skew_s is not None and abs(host.clock_skew_s) > SKEW_S
        },
        refused=dict(refused),
    )


def _setting(session: Session, name: str) -> str:
    return str(session.scalar(text("SELECT current_setting(:name)"), {"name": name}))


def _connections(session: Session) -> tuple[int, int]:
    used = session.scalar(text("SELECT count(*) FROM pg_stat_activity"))
    return int(used or 0), int(_setting(session, "max_connections"))


def _count(session: Session, table: Any, **equal: Any) -> int:
    conditions = [getattr(table, name) == value for name, value in equal.items()]
    return session.scalar(select(func.count()).select_from(table).where(*conditions)) or 0

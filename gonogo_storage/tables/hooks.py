"""What comes in from GitHub and other CI, the rules about it, and what each run that was started so
is for.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, LargeBinary, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from gonogo_storage.db.base import Base
from gonogo_storage.db.columns import IdType

_DUE = text("due_at IS NOT NULL")


class InboundRow(Base):
    """A delivery as it came; its source and the sender's own id for it make it happen once."""

    __tablename__ = "inbound_deliveries"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    source: Mapped[str]  # gonogo_storage.db.states.HookSource
    delivery: Mapped[str]  # X-GitHub-Delivery, or webhook-id
    event: Mapped[str]
    repository: Mapped[str | None]  # known once it was worked off
    body: Mapped[bytes | None] = mapped_column(LargeBinary)  # zlib; null: forgotten after a month
    size: Mapped[int]  # of the body as it came
    state: Mapped[str]
    reason: Mapped[str | None]
    outcome: Mapped[list[Any]]  # per rule that fitted: what it started, or why not
    tries: Mapped[int]
    due_at: Mapped[datetime | None]  # null: nothing more is to be done
    received_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]
    __table_args__ = (
        UniqueConstraint("source", "delivery"),
        Index("ix_inbound_deliveries_due", "due_at", sqlite_where=_DUE, postgresql_where=_DUE),
        Index("ix_inbound_deliveries_repository", "repository", "id"),
    )


class CiRuleRow(Base):
    """A rule in its newest version: which events of which repositories start which suites and
    gauges.
    """

    __tablename__ = "ci_rules"
    name: Mapped[str] = mapped_column(primary_key=True)
    version: Mapped[int]
    key: Mapped[str]  # hash of the content: the same again is no new version
    content: Mapped[dict[str, Any]]
    owner: Mapped[str]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    archived_at: Mapped[datetime | None]


class CommitCheckRow(Base):
    """What a rule started for one delivery, and whom it is for: one row per suite, and one more for
    the rule's gauges.
    """

    __tablename__ = "commit_checks"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    delivery_id: Mapped[str] = mapped_column(IdType, ForeignKey("inbound_deliveries.id"))
    source: Mapped[str]
    event: Mapped[str]
    rule: Mapped[str]
    suite: Mapped[str | None]  # null: the gauges of the rule
    suite_key: Mapped[
        str | None
    ]  # hash of the suite's content: runs of the same suite on the same commit need not be repeated
    repository: Mapped[str]  # owner/name; of a pull request the one that it is made to
    installation: Mapped[int | None] = mapped_column(BigInteger)  # of the GitHub App that was told
    branch: Mapped[str | None]  # that was pushed to, or that a pull request is made to
    pull_request: Mapped[int | None]
    fork: Mapped[bool]
    head_sha: Mapped[str]
    base_sha: Mapped[str | None]
    head_build: Mapped[str | None]
    base_build: Mapped[str | None]
    run_id: Mapped[str | None] = mapped_column(
        IdType
    )  # of the head; null: it could not be started (error), or gauges only
    base_run_id: Mapped[str | None] = mapped_column(
        IdType
    )  # may have been started for an earlier delivery
    gauges: Mapped[list[Any]]
    error: Mapped[str | None]  # why the head's or the base's run is missing
    occurred_at: Mapped[
        datetime
    ]  # by the sender's clock: of two about one pull request the later one counts
    created_at: Mapped[datetime]
    __table_args__ = (
        UniqueConstraint("delivery_id", "rule", "suite"),
        Index("ix_commit_checks_run", "run_id"),
        Index("ix_commit_checks_base_run", "base_run_id"),
        Index("ix_commit_checks_head", "repository", "head_sha"),
        Index("ix_commit_checks_pull_request", "repository", "pull_request", "id"),
    )

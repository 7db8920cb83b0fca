"""CI: rules, incoming deliveries, checks of commits and answers to GitHub."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, LargeBinary, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.columns import IdType
from gonogo_service.kit.outbox.due_columns import DueColumns, due_index


class AnswerRow(DueColumns, Base):
    """The state of our report to GitHub about a commit check.

    `sent_digests` maps each part (status, check, comment) to the hash of what GitHub last accepted.
    `tries` are the failed ones since then.
    """

    __tablename__ = "github_answers"
    commit_check: Mapped[str] = mapped_column(
        "commit_check_id", IdType, ForeignKey("commit_checks.id"), primary_key=True
    )
    state: Mapped[str]  # gonogo_service.kit.database.states.AnswerState
    sent_digests: Mapped[dict[str, Any]] = mapped_column("told")
    # GitHub's number of our check run
    check: Mapped[int | None] = mapped_column("check_id", BigInteger)
    error: Mapped[str | None]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    __table_args__ = (due_index("github_answers"),)


class CommentRow(Base):
    """Our comment on a pull request; it is edited, so that there is only one."""

    __tablename__ = "github_comments"
    repository: Mapped[str] = mapped_column(primary_key=True)
    pull_request: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    comment_id: Mapped[int] = mapped_column(BigInteger)
    digest: Mapped[str] = mapped_column("told")  # of its text
    updated_at: Mapped[datetime]


class IncomingDeliveryRow(DueColumns, Base):
    """An incoming delivery as received; its source and the sender's id make it happen once."""

    __tablename__ = "incoming_deliveries"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    source: Mapped[str]  # gonogo_service.kit.database.states.HookSource
    delivery: Mapped[str]  # X-GitHub-Delivery, or webhook-id
    event: Mapped[str]
    repository: Mapped[str | None]  # null until it is processed
    body: Mapped[bytes | None] = mapped_column(LargeBinary)  # zlib; null: deleted after a month
    size: Mapped[int]  # of the body as received, in bytes
    state: Mapped[str]
    reason: Mapped[str | None]
    outcome: Mapped[list[Any]]  # per matching rule: what it started, or why not
    received_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]
    __table_args__ = (
        UniqueConstraint("source", "delivery"),
        due_index("incoming_deliveries"),
        Index("ix_incoming_deliveries_repository", "repository", "id"),
    )


class CommitCheckRow(Base):
    """The work that a rule started for one delivery, and the commit that it checks.

    There is one row per suite, and one for all gauges of the rule.
    """

    __tablename__ = "commit_checks"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    delivery: Mapped[str] = mapped_column(
        "delivery_id", IdType, ForeignKey("incoming_deliveries.id")
    )
    source: Mapped[str]
    event: Mapped[str]
    rule: Mapped[str]
    suite: Mapped[str | None]  # null: the gauges of the rule
    # Hash of the suite's content: the same suite on the same commit is not run twice.
    suite_key: Mapped[str | None]
    repository: Mapped[str]  # owner/name; of a pull request, the target
    installation: Mapped[int | None] = mapped_column(BigInteger)  # of the GitHub App
    branch: Mapped[str | None]  # that was pushed to, or the target of the pull request
    pull_request: Mapped[int | None]
    fork: Mapped[bool]
    head_sha: Mapped[str]
    base_sha: Mapped[str | None]
    head_build: Mapped[str | None]
    base_build: Mapped[str | None]
    # The head's run; null: it could not be started (see `error`), or the row is for gauges.
    run: Mapped[str | None] = mapped_column("run_id", IdType)
    # The base's run; an earlier delivery may have started it.
    base_run: Mapped[str | None] = mapped_column("base_run_id", IdType)
    gauges: Mapped[list[Any]]
    error: Mapped[str | None]  # why the head's or the base's run is missing
    # By the sender's clock. Of two deliveries about one pull request, the later one counts.
    occurred_at: Mapped[datetime]
    created_at: Mapped[datetime]
    __table_args__ = (
        UniqueConstraint("delivery_id", "rule", "suite"),
        Index("ix_commit_checks_run", "run_id"),
        Index("ix_commit_checks_base_run", "base_run_id"),
        Index("ix_commit_checks_head", "repository", "head_sha"),
        Index("ix_commit_checks_pull_request", "repository", "pull_request", "id"),
    )

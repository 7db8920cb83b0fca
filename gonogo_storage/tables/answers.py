"""What was told to GitHub of each commit_check, and the one comment of each pull request."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from gonogo_storage.db.base import Base
from gonogo_storage.db.columns import IdType

_DUE = text("due_at IS NOT NULL")


class AnswerRow(Base):
    """How far the answer about a commit_check has come. `told`: part (status, check, comment) -> hash of
    what GitHub took last.
    """

    __tablename__ = "github_answers"
    commit_check_id: Mapped[str] = mapped_column(
        IdType, ForeignKey("commit_checks.id"), primary_key=True
    )
    state: Mapped[str]  # gonogo_storage.db.states.AnswerState
    told: Mapped[dict[str, Any]]
    check_id: Mapped[int | None] = mapped_column(BigInteger)  # GitHub's number of our check run
    tries: Mapped[int]  # that failed since something was taken
    error: Mapped[str | None]
    due_at: Mapped[datetime | None]  # null: nothing more is to be told
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    __table_args__ = (
        Index("ix_github_answers_due", "due_at", sqlite_where=_DUE, postgresql_where=_DUE),
    )


class CommentRow(Base):
    """The comment of a pull request that is written anew instead of followed by another one."""

    __tablename__ = "github_comments"
    repository: Mapped[str] = mapped_column(primary_key=True)
    pull_request: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    comment_id: Mapped[int] = mapped_column(BigInteger)
    told: Mapped[str]
    updated_at: Mapped[datetime]

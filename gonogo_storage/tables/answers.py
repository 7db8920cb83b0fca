"""Reports to GitHub about each commit check, and the one comment on each pull request."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from gonogo_storage.db.base import Base
from gonogo_storage.db.columns import IdType
from gonogo_storage.tables.due import DueColumns, due_index


class AnswerRow(DueColumns, Base):
    """The state of our report to GitHub about a commit check.

    `sent_digests` maps each part (status, check, comment) to the hash of what GitHub last accepted.
    `tries` are the failed ones since then.
    """

    __tablename__ = "github_answers"
    commit_check: Mapped[str] = mapped_column(
        "commit_check_id", IdType, ForeignKey("commit_checks.id"), primary_key=True
    )
    state: Mapped[str]  # gonogo_storage.db.states.AnswerState
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

"""CI: rules, incoming deliveries, checks of commits and answers to GitHub."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from sqlalchemy import BigInteger, ForeignKey, Index, LargeBinary, UniqueConstraint
from sqlalchemy.ext.associationproxy import AssociationProxy, association_proxy
from sqlalchemy.orm import Mapped, foreign, mapped_column, relationship, remote, synonym

from gonogo.ci.rules import Rule
from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.columns import INTERNAL, IdType, JsonType, Stored, WordOf
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.states import HookSource
from gonogo_service.kit.outbox.model import Backoff, DueWorkRow
from gonogo_service.kit.versioned import Versioned


@dataclass(frozen=True)
class RuleOutcome:
    """The work that a rule started for a delivery, or the reason why it started nothing."""

    rule: str
    commit_checks: list[str]
    started: bool
    reason: str | None

    @classmethod
    def refused(cls, rule: str, reason: str) -> RuleOutcome:
        """Return the outcome of a rule that starts nothing."""
        return cls(rule, [], False, reason)


class IncomingDeliveryRow(DueWorkRow):
    """An incoming delivery as received; its source and the sender's id make it happen once."""

    KIND: ClassVar[str] = "incoming"
    backoff: ClassVar[Backoff] = Backoff.after(5, 60, 300, 1800, 3600, tries=20)
    source: Mapped[HookSource] = mapped_column(WordOf(HookSource), nullable=True)
    delivery: Mapped[str] = mapped_column(nullable=True)  # X-GitHub-Delivery, or webhook-id
    event: Mapped[str] = synonym("topic")
    repository: Mapped[str | None]  # null until it is processed
    body: Mapped[bytes | None] = mapped_column(  # zlib; null: deleted after a month
        LargeBinary, info=INTERNAL, deferred=True
    )
    size: Mapped[int] = mapped_column(nullable=True)  # of the body as received, in bytes
    outcome: Mapped[list[RuleOutcome]] = mapped_column(
        Stored(list[RuleOutcome]), nullable=True, doc="For each matching rule"
    )
    received_at: Mapped[datetime] = synonym("created_at")


_IS_KNOWN = IncomingDeliveryRow.repository.is_not(None)
Index(
    "ix_due_work_repository",
    IncomingDeliveryRow.repository,
    IncomingDeliveryRow.id,
    sqlite_where=_IS_KNOWN,
    postgresql_where=_IS_KNOWN,
)


class CommitCheckRow(Base):
    """The work that a rule started for one delivery, and the commit that it checks.

    There is one row per suite, and one for all gauges of the rule.
    """

    __tablename__ = "commit_checks"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    delivery: Mapped[str] = mapped_column("delivery_id", IdType, ForeignKey("due_work.id"))
    source: Mapped[HookSource] = mapped_column(
        WordOf(HookSource), doc='"github" or "ci": only the first can be answered at GitHub.'
    )
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
    gauges: Mapped[list[str]] = mapped_column(JsonType)
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


class AnswerRow(DueWorkRow):
    """Our report to GitHub about a commit check, which has the same id.

    `tries` are the failed ones since GitHub accepted a part.
    """

    KIND: ClassVar[str] = "answer"
    backoff: ClassVar[Backoff] = Backoff.after(5, 30, 300, 1800, 3600, 10800, 21600, 43200, tries=9)
    commit_check: Mapped[str] = synonym("id")
    # part (status, check, comment) -> hash of what GitHub last accepted
    sent_digests: Mapped[dict[str, Any]] = synonym("payload")
    check: Mapped[int | None] = mapped_column("check_id", BigInteger)  # GitHub's check run
    error: Mapped[str | None] = synonym("reason")
    updated_at: Mapped[datetime] = mapped_column(nullable=True, onupdate=utcnow)
    about: Mapped[CommitCheckRow] = relationship(
        primaryjoin=lambda: foreign(AnswerRow.id) == remote(CommitCheckRow.id),
        viewonly=True,
        lazy="joined",
        innerjoin=True,
    )
    repository: AssociationProxy[str] = association_proxy("about", "repository")
    head_sha: AssociationProxy[str] = association_proxy("about", "head_sha")
    pull_request: AssociationProxy[int | None] = association_proxy("about", "pull_request")
    event: AssociationProxy[str] = association_proxy("about", "event")
    rule: AssociationProxy[str] = association_proxy("about", "rule")
    suite: AssociationProxy[str | None] = association_proxy("about", "suite")
    run: AssociationProxy[str | None] = association_proxy("about", "run")

    @property
    def accepted_parts(self) -> list[str]:
        """Return the parts that GitHub accepted: status, check, comment."""
        return sorted(self.sent_digests)


class CommentRow(Base):
    """Our comment on a pull request; it is edited, so that there is only one."""

    __tablename__ = "github_comments"
    repository: Mapped[str] = mapped_column(primary_key=True)
    pull_request: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    comment_id: Mapped[int] = mapped_column(BigInteger)
    digest: Mapped[str] = mapped_column("told")  # of its text
    updated_at: Mapped[datetime]


class CiRuleRow(Versioned):
    """The newest version of a rule: which events of which repositories start what."""

    __tablename__ = "ci_rules"

    @property
    def rule(self) -> Rule:
        """Return the rule itself."""
        return Rule.parse(self.content)

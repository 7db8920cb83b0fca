"""A flag and its changes: the rows, which are also the answers."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, UniqueConstraint, case, select
from sqlalchemy.orm import Mapped, mapped_column, object_session

from gonogo.flakiness.flag_kinds import FlagKind
from gonogo.flakiness.waivers import day
from gonogo_service.flags.noun import FlagState
from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.columns import INTERNAL, IdType, WordOf

BACKGROUND = "background"
"""The actor of changes that follow from results or from the time."""
MAX_CHANGES = 200


OPEN = (FlagState.open, FlagState.reopened)
STATES: dict[str, tuple[FlagState, ...]] = {
    "open": OPEN,
    "acknowledged": (FlagState.acknowledged,),
    "resolved": (FlagState.resolved,),
    "reopened": (FlagState.reopened,),
    "unresolved": (*OPEN, FlagState.acknowledged),
    "any": tuple(FlagState),
}
"""The states that a filter means."""


class FlagRow(Base):
    """A finding about a test on one branch and one kind of board, with its evidence and state."""

    __tablename__ = "flags"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    kind: Mapped[FlagKind] = mapped_column(WordOf(FlagKind))
    state: Mapped[FlagState] = mapped_column(WordOf(FlagState))
    test_key: Mapped[str] = mapped_column(ForeignKey("test_specs.key"))
    workload_key: Mapped[str]
    kernel: Mapped[str]
    build: Mapped[str]
    branch: Mapped[str]
    arch: Mapped[str]
    board: Mapped[str]
    owner: Mapped[str | None]
    reason: Mapped[str | None]
    evidence: Mapped[dict[str, Any]]  # an evidence.FlagEvidence, as the version that found it made
    first_job: Mapped[str] = mapped_column(IdType)
    last_job: Mapped[str] = mapped_column(IdType)
    jobs: Mapped[int]
    version: Mapped[int]
    opened_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    # The variant's newest job at the last evidence; later jobs may be quiet.
    quiet_after: Mapped[str | None] = mapped_column(IdType, info=INTERNAL)
    __table_args__ = (
        UniqueConstraint("kind", "test_key", "branch", "arch", "board"),
        Index("ix_flags_state", "state", "kind", "id"),
        Index("ix_flags_owner", "owner", "state", "kind", "id"),
        Index("ix_flags_build", "build", "state", "kind", "id"),
    )

    @classmethod
    def finding(cls, kind: FlagKind, job: Any, evidence: dict[str, Any], **others: Any) -> FlagRow:
        """Return a finding that `store.upsert` takes: a flag that no session has.

        job: the job that shows it, or anything with its id, variant, workload and kernel. others:
        columns with other values than the job's.
        """
        names = ("test_key", "branch", "arch", "board", "workload_key", "kernel", "build")
        values = {name: getattr(job, name) for name in names if name not in others} | others
        return cls(kind=kind, evidence=evidence, last_job=job.id, **values)

    @property
    def sentence(self) -> str:
        """The finding in words."""
        return str(
            self.evidence.get("words") or self.evidence.get("sentence") or self.kind.sentence
        )

    @property
    def check(self) -> str | None:
        """The command that shows it again."""
        return self.evidence.get("check")

    @property
    def diagnosis(self) -> str | None:
        """The fault of the kernel, where its numbers show one."""
        return self.evidence.get("diagnosis")

    @property
    def effect(self) -> str | None:
        """The effect of its acknowledgement on commits, and until when; None for none."""
        end = self.expires_at
        return None if end is None else self.effect_until(f"Until {day(end)}")

    def effect_until(self, end: str) -> str:
        """Return what an acknowledgement does to commits; `end` begins the sentence."""
        if self.kind.accepts is None:
            return f"{end}, it is not an open flag. It blocks no commit anyway."
        return (
            f"{end}, {self.kind.accepts} of this test on {self.arch} {self.board} block no commit"
            f" of the branch {self.branch}, and none compared with it."
        )

    @property
    def history(self) -> list[FlagChangeRow]:
        """The newest changes, newest first."""
        session = object_session(self)
        assert session is not None, "the history is read in the session of its flag"
        query = select(FlagChangeRow).where(FlagChangeRow.flag_id == self.id)
        return list(
            session.scalars(query.order_by(FlagChangeRow.version.desc()).limit(MAX_CHANGES))
        )


class FlagChangeRow(Base):
    """A change of a flag that matters to people; rows are only ever added.

    Renewed evidence alone is not such a change.
    """

    __tablename__ = "flag_changes"
    flag_id: Mapped[str] = mapped_column(IdType, ForeignKey("flags.id"), primary_key=True)
    # The flag's version after the change.
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at: Mapped[datetime]
    actor: Mapped[str]
    what: Mapped[str]  # "opened", "reopened", "resolved", "expired", "changed"
    before: Mapped[FlagState | None] = mapped_column(WordOf(FlagState))
    after: Mapped[FlagState] = mapped_column(WordOf(FlagState))
    reason: Mapped[str | None]
    detail: Mapped[dict[str, Any] | None]  # an evidence.FlagDetail


RANK: Any = case(
    {kind.value: kind.rank for kind in FlagKind}, value=FlagRow.kind, else_=len(FlagKind)
)
"""The place of a flag's kind in the order of triage."""

"""Flags as pages and rules read them; those of the overview by kind. All reads are bounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session, defer

from gonogo.flakiness.flag_kinds import FlagKind
from gonogo_service.flags.model import OPEN, RANK, FlagChangeRow, FlagRow
from gonogo_service.flags.noun import FlagState
from gonogo_service.tests.model import TestSpecRow
from gonogo_service.tests.variants import Variant, newest_builds

MAX_FLAGS = 5000
"""Maximum number of open flags whose newest build is looked up, newest first."""


@dataclass(frozen=True)
class ShownFlag:
    """A flag with its test's canonical form, and the newest build of its variant with results."""

    flag: FlagRow
    test: Mapping[str, Any]
    newest_build: str | None

    @property
    def gone(self) -> bool:
        """Return whether the newest build of the flag's variant doesn't have it any more."""
        return self.flag.kind.is_gone(self.flag.build, self.newest_build)


@dataclass(frozen=True)
class OpenFlags:
    """The open flags of one kind: their numbers, and the latest of them."""

    kind: FlagKind
    count: int
    gone: int
    """Number of those that the newest build doesn't have any more; `count` includes them."""
    latest: tuple[ShownFlag, ...]
    """The latest that the newest build still has, then the latest others."""


def open_flags(session: Session, *, latest: int) -> tuple[list[OpenFlags], int]:
    """Return the open flags by kind, in the order of triage, and the number of acknowledged flags.

    Each kind has its `latest` flags that the newest build still has, and as many that it doesn't
    have any more.
    """
    counts, acknowledged = open_by_kind(session)
    newest: dict[Variant, str] = {}
    # split before they are cut, so that old flags never hide behind new ones
    ids: dict[tuple[FlagKind, bool], list[str]] = {}
    if counts:
        columns = FlagRow.id, FlagRow.kind, FlagRow.build, FlagRow.test_key, FlagRow.branch
        query = select(*columns, FlagRow.arch, FlagRow.board).where(FlagRow.state.in_(OPEN))
        rows = session.execute(query.order_by(FlagRow.id.desc()).limit(MAX_FLAGS)).all()
        newest = newest_builds(session, {Variant.of(row) for row in rows})
        for row in rows:
            gone = row.kind.is_gone(row.build, newest.get(Variant.of(row)))
            ids.setdefault((row.kind, gone), []).append(row.id)
    chosen = [flag_id for part in ids.values() for flag_id in part[:latest]]
    records = (
        select(FlagRow, TestSpecRow.test)
        .join(TestSpecRow, TestSpecRow.key == FlagRow.test_key)
        .where(FlagRow.id.in_(chosen))
        .order_by(FlagRow.updated_at.desc(), FlagRow.id.desc())
    )
    shown: dict[FlagKind, list[ShownFlag]] = {}
    for flag, test in session.execute(records) if chosen else ():
        shown.setdefault(flag.kind, []).append(ShownFlag(flag, test, newest.get(Variant.of(flag))))
    kinds = [
        OpenFlags(
            kind,
            number,
            len(ids.get((kind, True), ())),
            tuple(sorted(shown.get(kind, ()), key=lambda flag: flag.gone)),
        )
        for kind, number in counts.items()
    ]
    return kinds, acknowledged


def open_by_kind(session: Session) -> tuple[dict[FlagKind, int], int]:
    """Return the number of open flags by kind, in the order of triage, and of acknowledged ones."""
    states = FlagRow.state.in_((*OPEN, FlagState.acknowledged))
    query = select(FlagRow.kind, FlagRow.state, func.count()).where(states)
    counts, acknowledged = Counter[FlagKind](), 0
    for kind, state, number in session.execute(query.group_by(FlagRow.kind, FlagRow.state)):
        if state is FlagState.acknowledged:
            acknowledged += number
        else:
            counts[kind] += number
    return {kind: counts[kind] for kind in FlagKind if kind in counts}, acknowledged


def open_total(session: Session) -> int:
    """Return the number of open flags."""
    query = select(func.count()).select_from(FlagRow).where(FlagRow.state.in_(OPEN))
    return session.scalar(query) or 0


def open_of_tests(session: Session, keys: Collection[str]) -> dict[str, list[FlagRow]]:
    """Return the open flags of tests without evidence, by the test's key, as for triage."""
    query = select(FlagRow).where(FlagRow.state.in_(OPEN), FlagRow.test_key.in_(list(keys)))
    query = query.options(defer(FlagRow.evidence))
    by_test: dict[str, list[FlagRow]] = {}
    for flag in session.scalars(query.order_by(RANK, FlagRow.id.desc())) if keys else ():
        by_test.setdefault(flag.test_key, []).append(flag)
    return by_test


def active(session: Session, variant: Variant) -> list[FlagRow]:
    """Return the unresolved flags of a variant."""
    query = select(FlagRow).where(*variant.at(FlagRow), FlagRow.state != FlagState.resolved)
    return list(session.scalars(query.order_by(FlagRow.kind)))


def acknowledged(
    session: Session,
    *,
    now: datetime,
    until: datetime | None = None,
    test: str | None = None,
    limit: int,
) -> list[FlagRow]:
    """Return the flags whose acknowledgement is in force, without evidence, the first to end first.

    until: only those that end by then.
    """
    query = select(FlagRow).where(FlagRow.state == FlagState.acknowledged, FlagRow.expires_at > now)
    query = query if until is None else query.where(FlagRow.expires_at <= until)
    query = query if test is None else query.where(FlagRow.test_key == test)
    query = query.order_by(FlagRow.expires_at, FlagRow.id).options(defer(FlagRow.evidence))
    return list(session.scalars(query.limit(limit)))


def changed_by_others(
    session: Session, owner: str, actor: str, since: datetime, limit: int
) -> list[tuple[FlagRow, FlagChangeRow]]:
    """Return an owner's flags that others have changed, without evidence, the latest first.

    actor: the owner's name in the audit. Each flag comes with its latest such change.
    """
    change = FlagChangeRow
    query = (
        select(FlagRow, change)
        .join(change, change.flag_id == FlagRow.id)
        .where(FlagRow.owner == owner, change.at > since, change.actor != actor)
        .where(change.what != "opened")  # nobody owned it then
        .order_by(change.at.desc(), change.version.desc())
        .options(defer(FlagRow.evidence))
    )
    latest: dict[str, tuple[FlagRow, FlagChangeRow]] = {}
    for flag, row in session.execute(query.limit(limit)):
        latest.setdefault(flag.id, (flag, row))
    return list(latest.values())

"""The open flags as the overview shows them, by kind. All reads are bounded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo.flakiness.flag_kinds import FlagKind
from gonogo_service.flags import store
from gonogo_service.flags.model import OPEN, FlagRow
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
    counts, acknowledged = store.open_by_kind(session)
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

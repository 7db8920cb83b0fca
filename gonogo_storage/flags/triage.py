"""Flags in the order in which people should look at them: by kind, hollow first, the newest of a
kind first. Reads only, by the index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from gonogo_storage.db.ids import is_id
from gonogo_storage.db.paging import BadCursor, Page
from gonogo_storage.db.states import FlagKind, FlagState
from gonogo_storage.flags.flags import as_json
from gonogo_storage.tables import FlagRow

ORDER = (
    FlagKind.passes_by_tolerance,
    FlagKind.fix_masked,
    FlagKind.blunt_test,
    FlagKind.hangs,
    FlagKind.flaky,
    FlagKind.nondeterministic,
    FlagKind.device_dependent,
    FlagKind.context_dependent,
    FlagKind.latent_flake,
    FlagKind.tolerance_too_tight,
)
"""Greens that lie come first, then what costs devices and patience, last what is red and right."""
STATES: Mapping[str, tuple[FlagState, ...]] = {
    "open": (FlagState.open, FlagState.reopened),
    "acknowledged": (FlagState.acknowledged,),
    "resolved": (FlagState.resolved,),
    "reopened": (FlagState.reopened,),
    "unresolved": (FlagState.open, FlagState.reopened, FlagState.acknowledged),
    "any": tuple(FlagState),
}


@dataclass(frozen=True)
class Wanted:
    """What a list is narrowed to; `job` and `build` are those of the newest evidence."""

    state: str = "open"
    """A key of STATES."""
    kind: str | None = None
    test: str | None = None
    owner: str | None = None
    build: str | None = None
    job: str | None = None


def listed(
    session: Session, wanted: Wanted, *, limit: int = 50, cursor: str | None = None
) -> Page[dict[str, Any]]:
    """A page of flags; the cursor is "kind.id". Raises BadCursor."""
    kinds = [each for each in ORDER if wanted.kind in (None, each.value)]
    after: str | None = None
    if cursor is not None:
        kind, _, after = cursor.partition(".")
        if kind not in kinds or not is_id(after):
            raise BadCursor(cursor)
        kinds = kinds[kinds.index(FlagKind(kind)) :]
    ids: list[str] = []
    for kind in kinds:
        room = limit + 1 - len(ids)
        if room <= 0:
            break
        ids += _newest(session, wanted, kind, after, room)
        after = None
    rows = {row.id: row for row in session.scalars(select(FlagRow).where(FlagRow.id.in_(ids)))}
    items = [as_json(rows[each]) for each in ids]
    return Page.cut(items, limit, lambda item: f"{item['kind']}.{item['id']}")


def open_by_kind(session: Session) -> dict[FlagKind, int]:
    """How many flags of each kind wait for someone, in ORDER; kinds without any are left out."""
    query = (
        select(FlagRow.kind, func.count())
        .where(FlagRow.state.in_(STATES["open"]))
        .group_by(FlagRow.kind)
    )
    found = dict(session.execute(query).all())
    return {kind: found[kind] for kind in ORDER if found.get(kind)}


def _newest(
    session: Session, wanted: Wanted, kind: str, after: str | None, most: int
) -> Sequence[str]:
    """Ids of one kind. A state at a time, so that the index (state, kind, id) gives each in order
    and no more than `most` are read.
    """
    table = FlagRow
    found: list[str] = []
    for state in STATES[wanted.state]:
        query = (
            select(table.id)
            .where(table.state == state, table.kind == kind)
            .order_by(table.id.desc())
            .limit(most)
        )
        for column, value in (
            (table.test_key, wanted.test),
            (table.owner, wanted.owner),
            (table.build, wanted.build),
        ):
            if value is not None:
                query = query.where(column == value)
        if wanted.job is not None:
            if not is_id(wanted.job):
                return ()
            query = query.where(table.last_job == wanted.job)
        found += session.scalars(query if after is None else query.where(table.id < after))
    return sorted(found, reverse=True)[:most]

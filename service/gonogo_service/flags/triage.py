"""The triage list of flags: by kind, hollow tests first, the newest of a kind first.

It only reads, by index.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from gonogo_service.flags.model import FlagRow
from gonogo_service.flags.store import Flag, of_row
from gonogo_service.kit.database.ids import is_id
from gonogo_service.kit.database.paging import BadCursor, Page
from gonogo_service.kit.database.states import FlagKind, FlagState

ORDER = (
    FlagKind.passes_by_tolerance,
    FlagKind.fix_masked,
    FlagKind.blunt_test,
    FlagKind.hangs,
    FlagKind.crashes,
    FlagKind.flaky,
    FlagKind.nondeterministic,
    FlagKind.device_dependent,
    FlagKind.context_dependent,
    FlagKind.latent_flake,
    FlagKind.tolerance_too_tight,
    FlagKind.arithmetic_changed,
)
"""False greens come first, then flags that cost time on devices, then false alarms.

The last ones are of right kernels that compute in another way than before.
"""
STATES: Mapping[str, tuple[FlagState, ...]] = {
    "open": (FlagState.open, FlagState.reopened),
    "acknowledged": (FlagState.acknowledged,),
    "resolved": (FlagState.resolved,),
    "reopened": (FlagState.reopened,),
    "unresolved": (FlagState.open, FlagState.reopened, FlagState.acknowledged),
    "any": tuple(FlagState),
}


@dataclass(frozen=True)
class FlagFilter:
    """The filter of a list; `job` and `build` are those of the newest evidence."""

    state: str = "open"
    """A key of STATES."""
    kind: str | None = None
    test: str | None = None
    owner: str | None = None
    build: str | None = None
    job: str | None = None


@dataclass(frozen=True)
class OpenFlag:
    """An open flag of a test."""

    id: str
    kind: str
    build: str


def listed(
    session: Session, filters: FlagFilter, *, limit: int = 50, cursor: str | None = None
) -> Page[Flag]:
    """Return a page of flags; the cursor is "kind.id". Raises BadCursor."""
    kinds = [kind for kind in ORDER if filters.kind in (None, kind.value)]
    after: str | None = None
    if cursor is not None:
        cursor_kind, _, after = cursor.partition(".")
        if cursor_kind not in kinds or not is_id(after):
            raise BadCursor(cursor)
        kinds = kinds[kinds.index(FlagKind(cursor_kind)) :]
    ids: list[str] = []
    for kind in kinds:
        room = limit + 1 - len(ids)
        if room <= 0:
            break
        ids += _newest(session, filters, kind, after, room)
        after = None
    rows = {row.id: row for row in session.scalars(select(FlagRow).where(FlagRow.id.in_(ids)))}
    items = [of_row(rows[flag_id]) for flag_id in ids]
    return Page.cut(items, limit, lambda flag: f"{flag.kind}.{flag.id}")


def open_by_kind(session: Session) -> dict[FlagKind, int]:
    """Return the number of open flags by kind, in ORDER; kinds without any are left out."""
    query = (
        select(FlagRow.kind, func.count())
        .where(FlagRow.state.in_(STATES["open"]))
        .group_by(FlagRow.kind)
    )
    counts = dict(session.execute(query).all())
    return {kind: counts[kind] for kind in ORDER if counts.get(kind)}


def open_of_tests(session: Session, keys: Collection[str]) -> dict[str, list[OpenFlag]]:
    """Return the open flags of tests, by the test's key, in ORDER."""
    table = FlagRow
    columns = (table.test_key, table.id, table.kind, table.build)
    query = select(*columns).where(table.state.in_(STATES["open"]), table.test_key.in_(list(keys)))
    rows = session.execute(query.order_by(table.id.desc())).all() if keys else []
    by_test: dict[str, list[OpenFlag]] = {}
    for key, *fields in sorted(rows, key=lambda row: ORDER.index(FlagKind(row.kind))):
        by_test.setdefault(key, []).append(OpenFlag(*fields))
    return by_test


def open_total(session: Session) -> int:
    """Return the number of open flags."""
    query = select(func.count()).select_from(FlagRow).where(FlagRow.state.in_(STATES["open"]))
    return session.scalar(query) or 0


def _newest(
    session: Session, filters: FlagFilter, kind: str, after: str | None, limit: int
) -> Sequence[str]:
    """Return the newest ids of one kind.

    Each state is read separately, so that the index (state, kind, id) gives them in order and no
    more than `limit` are read.
    """
    table = FlagRow
    ids: list[str] = []
    for state in STATES[filters.state]:
        query = (
            select(table.id)
            .where(table.state == state, table.kind == kind)
            .order_by(table.id.desc())
            .limit(limit)
        )
        for column, value in (
            (table.test_key, filters.test),
            (table.owner, filters.owner),
            (table.build, filters.build),
        ):
            if value is not None:
                query = query.where(column == value)
        if filters.job is not None:
            if not is_id(filters.job):
                return ()
            query = query.where(table.last_job == filters.job)
        ids += session.scalars(query if after is None else query.where(table.id < after))
    return sorted(ids, reverse=True)[:limit]

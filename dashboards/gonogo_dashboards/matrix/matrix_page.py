"""Read model of the build matrix: tests by builds of a branch, newest build first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.spec.verdicts import WORST_FIRST
from gonogo_dashboards.kit import axis_events
from gonogo_dashboards.kit.axis_events import AxisEvent
from gonogo_dashboards.kit.build_cells import HOLLOW
from gonogo_dashboards.kit.list_view import filters_of
from gonogo_dashboards.kit.site import number
from gonogo_dashboards.matrix.matrix_rows import (
    MatrixBuild,
    MatrixRow,
    heads_of,
    rows_of,
    summary,
)
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.kit.database.paging import Page
from gonogo_service.kit.database.records import from_object
from gonogo_service.tests import axis_changes, matrices, test_list, test_specs
from gonogo_service.tests.matrices import GRADES, BuildRecord, Place
from gonogo_service.tests.model import TestSpecRow
from gonogo_service.tests.standings import Standings

FILTERS = ("branch", "arch", "board", "kernel", "verdict", "label", "suite", "grade", "until")
_OF_ROWS = ("kernel", "verdict", "label", "suite", "grade")
BUILDS, MAX_BUILDS = 20, 60
"""Default and maximum number of columns."""


@dataclass(frozen=True)
class MatrixLine:
    """A line of the matrix as CSV: a test on one kind of board and one build."""

    test: str
    label: str
    kernel: str
    shape: str
    tolerance: str
    arch: str
    board: str
    build: str
    verdict: str
    hollow: bool
    lost: int
    seeds: int
    words: str
    url: str


@dataclass(frozen=True)
class MatrixView:
    """A page of the matrix; `older_url` leads to older builds, `next_url` to more tests."""

    branch: str | None
    branches: tuple[str, ...]
    suites: tuple[str, ...]
    kernels: tuple[str, ...]
    grades: tuple[str, ...]
    builds: tuple[MatrixBuild, ...]
    rows: tuple[MatrixRow, ...]
    columns: int
    filters: Mapping[str, str]
    summary: str
    older: int
    older_url: str | None
    newest_url: str | None
    next: str | None
    next_url: str | None
    at: str | None
    events: tuple[AxisEvent, ...] = ()
    """The changes of arithmetics, firmware and tolerances between these builds."""

    @property
    def items(self) -> Iterator[MatrixLine]:
        """Yield the cells in which a test ran, row by row."""
        for row in self.rows:
            for build, cell in zip(self.builds, row.cells, strict=True):
                if cell:
                    url = row.url + urls.further("build", build.name)
                    yield from_object(MatrixLine, cell, row, build=build.name, url=url)

    @property
    def changed(self) -> Mapping[int, str]:
        """Return the words of the changes by column."""
        by_column: dict[int, list[str]] = {}
        for event in self.events:
            by_column.setdefault(round(event.place), []).append(event.words)
        return {column: "; ".join(texts) for column, texts in by_column.items()}

    @property
    def mixed(self) -> bool:
        """Return whether some cell is hollow and also has a worse verdict."""
        cells = (cell for row in self.rows for cell in row.cells if cell)
        return any(cell.hollow and cell.verdict != HOLLOW for cell in cells)


@dataclass(frozen=True)
class Glance:
    """The tests that need attention most, on the last builds of the branch that ran last."""

    branch: str | None
    builds: tuple[MatrixBuild, ...]
    rows: tuple[MatrixRow, ...]
    summary: str


def glance(
    session: Session,
    known: Sequence[BuildRecord],
    standings: Standings,
    tests: int,
    columns: int,
) -> Glance:
    """Return a compact matrix: the `tests` that need attention most by the last builds.

    known: matrices.builds. standings: how tests stand now.
    """
    branch = matrices.main_branch(known)
    if branch is None:
        return Glance(None, (), (), "")
    shown = [build for build in reversed(known) if build.branch == branch][:columns]
    place = Place([build.name for build in shown], branch)
    rows = rows_of(session, test_list.worst(session, standings, branch, tests), place)
    heads = heads_of(shown, rows)
    return Glance(branch, heads, rows, summary(heads, rows, branch))


def read(
    session: Session,
    query: Mapping[str, str],
    cursor: str | None,
    limit: int,
    now: datetime,
) -> MatrixView:
    """Return the matrix of one branch: of `branch`, else of the branch that ran last.

    Raises gonogo_service.kit.database.paging.BadCursor.
    """
    columns = number(query.get("builds"), BUILDS, MAX_BUILDS)
    given = filters_of(query, FILTERS)
    address = {**given, "builds": str(columns) if columns != BUILDS else ""}
    known = matrices.builds(session)
    branches = tuple(dict.fromkeys(build.branch for build in known))
    branch = given.get("branch") or matrices.main_branch(known)
    ordered = [build for build in reversed(known) if build.branch == branch]
    names = [build.name for build in ordered]
    first = names.index(given["until"]) if given.get("until") in names else 0
    last = first + columns
    place = Place(names[first:last], branch or "", given.get("arch"), given.get("board"))
    only = {name: given.get(name) for name in _OF_ROWS}
    page: Page[TestSpecRow] = Page((), None)
    if (
        place.builds
        and only["verdict"] in (None, *WORST_FIRST)
        and only["grade"] in (None, *GRADES)
    ):
        page = matrices.rows(session, place, now, **only, limit=limit, cursor=cursor or None)
    rows = rows_of(session, page.items, place)
    heads = heads_of(ordered[first:last], rows, next(iter(ordered[last:]), None))
    suites, suite = matrices.suites(session), given.get("suite")
    older = names[last:]
    return MatrixView(
        branch=branch,
        branches=branches if branch in branches or branch is None else (*branches, branch),
        grades=GRADES,
        suites=tuple(suites if suite is None or suite in suites else [*suites, suite]),
        kernels=tuple(test_specs.kernels(session)),
        builds=heads,
        rows=rows,
        columns=columns,
        filters=given,
        summary=summary(heads, rows, branch),
        older=len(older),
        older_url=urls.matrix({**address, "until": older[0]}) if older else None,
        newest_url=urls.matrix({**address, "until": None}) if first else None,
        next=page.next,
        next_url=urls.matrix(address, cursor=page.next) if page.next else None,
        at=timestamp(now),
        events=_events(session, place.builds, rows),
    )


def _events(
    session: Session, names: Sequence[str], rows: Sequence[MatrixRow]
) -> tuple[AxisEvent, ...]:
    """Return the changes between these builds for the tests of these rows, the newest first."""
    in_order = names[::-1]
    changes = axis_changes.of_builds(session, in_order, {row.test for row in rows})
    events = reversed(axis_events.of_builds(changes, in_order))
    return tuple(replace(event, place=len(names) - 1 - event.place) for event in events)

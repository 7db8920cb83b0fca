"""Read model of the build matrix: tests by builds of a branch, newest build first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.spec.executors import EMULATOR
from gonogo.spec.verdicts import WORST_FIRST
from gonogo_dashboards.kit import axis_events, words
from gonogo_dashboards.kit.axis_events import AxisEvent
from gonogo_dashboards.kit.build_cells import HOLLOW, LOST, RED, verdict_of
from gonogo_dashboards.kit.labels import Listed, labels
from gonogo_dashboards.kit.list_rows import Count, counts, details_of, shape_of, tolerance_of
from gonogo_service.builds import entry_names
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.kit.database.paging import Page
from gonogo_service.tests import axis_changes, matrices, test_list
from gonogo_service.tests.matrices import GRADES, BuildRecord, CellPlace, Place
from gonogo_service.tests.test_list import TestHead

FILTERS = ("branch", "arch", "board", "kernel", "verdict", "label", "suite", "grade", "until")
_OF_ROWS = ("kernel", "verdict", "label", "suite", "grade")
BUILDS, MAX_BUILDS = 20, 60
"""Default and maximum number of columns."""


@dataclass(frozen=True)
class MatrixBuild:
    """A column: a build, and its hollow and red rows.

    `compare_url` leads to the comparison with the build before it.
    """

    name: str
    url: str
    sequence: int
    hollow: int
    red: int
    compare_url: str | None


@dataclass(frozen=True)
class MatrixCell:
    """A test on a build: the worst verdict of its seeds.

    `lost` counts hangs, crashes and errors separately. `hollow`: some seed is a hollow pass.
    """

    verdict: str
    hollow: bool
    lost: int
    seeds: int
    counts: tuple[Count, ...]
    words: str
    seeds_words: str
    """The seeds by verdict: "4 hollow pass, 1 fail"."""
    url: str


@dataclass(frozen=True)
class MatrixRow:
    """A test on one kind of board; a cell per column, None where it did not run."""

    test: str
    url: str
    label: str
    """Kernel and shape, after what tells it from another row with the same ones."""
    kernel: str
    shape: str
    tolerance: str
    details: str
    """The suite's name for it, and its fields that differ from the default."""
    arch: str
    board: str
    cells: tuple[MatrixCell | None, ...]


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
    json_url: str
    at: str | None
    events: tuple[AxisEvent, ...] = ()
    """The changes of arithmetics, firmware and tolerances between these builds."""

    @property
    def items(self) -> Iterator[MatrixLine]:
        """Yield the cells in which a test ran, row by row."""
        for row in self.rows:
            about = row.test, row.label, row.kernel, row.shape, row.tolerance, row.arch, row.board
            for build, cell in zip(self.builds, row.cells, strict=True):
                if cell:
                    result = cell.verdict, cell.hollow, cell.lost, cell.seeds, cell.seeds_words
                    yield MatrixLine(*about, build.name, *result, cell.url)

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
    url: str
    compare_url: str
    """The newest build against the one before; "" where there is none."""


def glance(session: Session, tests: int, columns: int) -> Glance:
    """Return a compact matrix: the `tests` that need attention most by the last builds."""
    known = matrices.builds(session)
    if not known:
        return Glance(None, (), (), "", urls.MATRIX, "")
    branch = _branch(known)
    shown = [build for build in reversed(known) if build.branch == branch][:columns]
    place = Place([build.name for build in shown], branch)
    rows = _rows(session, test_list.worst(session, branch, tests), place)
    heads = _heads(shown, rows, [None] * columns)
    names = place.builds
    changed = urls.compare(names[1], names[0]) if len(names) > 1 else ""
    address = urls.matrix({"branch": branch})
    return Glance(branch, heads, rows, _summary(heads, rows, branch), address, changed)


def read(
    session: Session,
    query: Mapping[str, str],
    cursor: str | None,
    limit: int,
    columns: int,
    now: datetime,
) -> MatrixView:
    """Return the matrix of one branch: of `branch`, else of the branch that ran last.

    Raises gonogo_service.kit.database.paging.BadCursor.
    """
    given = {name: value for name in FILTERS if (value := query.get(name, "").strip())}
    address = {**given, "builds": str(columns) if columns != BUILDS else ""}
    known = matrices.builds(session)
    branches = tuple(dict.fromkeys(build.branch for build in known))
    branch = given.get("branch") or (_branch(known) if known else None)
    ordered = [build for build in reversed(known) if build.branch == branch]
    names = [build.name for build in ordered]
    first = names.index(given["until"]) if given.get("until") in names else 0
    last = first + columns
    place = Place(names[first:last], branch or "", given.get("arch"), given.get("board"))
    only = {name: given.get(name) for name in _OF_ROWS}
    page: Page[TestHead] = Page((), None)
    if (
        place.builds
        and only["verdict"] in (None, *WORST_FIRST)
        and only["grade"] in (None, *GRADES)
    ):
        page = matrices.rows(session, place, **only, limit=limit, cursor=cursor or None)
    rows = _rows(session, page.items, place)
    heads = _heads(ordered[first:last], rows, [*names[first + 1 : last + 1], None])
    suites, suite = matrices.suites(session), given.get("suite")
    older = names[last:]
    return MatrixView(
        branch=branch,
        branches=branches if branch in branches or branch is None else (*branches, branch),
        grades=GRADES,
        suites=tuple(suites if suite is None or suite in suites else [*suites, suite]),
        builds=heads,
        rows=rows,
        columns=columns,
        filters=given,
        summary=_summary(heads, rows, branch),
        older=len(older),
        older_url=urls.matrix({**address, "until": older[0]}) if older else None,
        newest_url=urls.matrix({**address, "until": None}) if first else None,
        next=page.next,
        next_url=urls.matrix(address, cursor=page.next) if page.next else None,
        json_url=urls.matrix(address, cursor=cursor, as_json=True),
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


def _branch(known: Sequence[BuildRecord]) -> str:
    """Return the branch of the newest job; the emulator's builds, which are no series, are last."""
    return max(known, key=lambda build: (build.branch != EMULATOR, build.newest_job)).branch


def _rows(session: Session, tests: Sequence[TestHead], place: Place) -> tuple[MatrixRow, ...]:
    """Return a row for each test and each kind of board that it ran on."""
    keys = [test.key for test in tests]
    by_cell = matrices.cells(session, keys, place) if keys else {}
    entries = entry_names.latest(session, set(keys))
    kinds: dict[str, set[tuple[str, str]]] = {}
    for cell in by_cell:
        kinds.setdefault(cell.test_key, set()).add((cell.arch, cell.board))
    ran = [(test, *kind) for test in tests for kind in sorted(kinds.get(test.key, ()))]
    listed = [
        Listed(test.canonical, entries.get(test.key), place={"arch": arch, "board": board})
        for test, arch, board in ran
    ]
    # of a thousand addresses only this part differs within a row
    ends = [(name, urls.further("build", name)) for name in place.builds]
    rows = []
    for (test, arch, board), label in zip(ran, labels(listed), strict=True):
        key, form = test.key, test.canonical
        url = urls.history(key, {"branch": place.branch, "arch": arch, "board": board})
        about = shape_of(form), tolerance_of(form), details_of(form, entries.get(key))
        cells = tuple(
            _cell(found, name, url + end)
            if (found := by_cell.get(CellPlace(key, arch, board, name)))
            else None
            for name, end in ends
        )
        rows.append(MatrixRow(key, url, label, test.kernel, *about, arch, board, cells))
    return tuple(rows)


def _cell(seeds: Mapping[str, int], build: str, url: str) -> MatrixCell:
    alike = _alike(tuple(seeds.items()))
    text = f"{words.mark(alike.verdict).label} on {build}: {alike.seeds_words}"
    return replace(alike, words=text, url=url)


@lru_cache(maxsize=4096)
def _alike(items: tuple[tuple[str, int], ...]) -> MatrixCell:
    """Return the cell of seeds by verdict, without its build; most cells of a page are alike."""
    seeds = dict(items)
    verdict, total = verdict_of(seeds), sum(seeds.values())
    shown = counts(seeds, max(1, total))
    text = ", ".join(f"{count.count:,} {count.label}" for count in shown)
    lost = sum(seeds.get(one, 0) for one in LOST)
    return MatrixCell(verdict, bool(seeds.get(HOLLOW)), lost, total, shown, "", text, "")


def _heads(
    builds: Sequence[BuildRecord], rows: Sequence[MatrixRow], before: Sequence[str | None]
) -> tuple[MatrixBuild, ...]:
    """Return the columns; before: the build that each is compared with."""
    heads = []
    for place, build in enumerate(builds):
        cells = [cell for row in rows if (cell := row.cells[place])]
        hollow, red = sum(one.hollow for one in cells), sum(one.verdict in RED for one in cells)
        base, url = before[place], urls.jobs({"build": build.name})
        compared = None if base is None else urls.compare(base, build.name)
        heads.append(MatrixBuild(build.name, url, build.sequence, hollow, red, compared))
    return tuple(heads)


def _summary(builds: Sequence[MatrixBuild], rows: Sequence[MatrixRow], branch: str | None) -> str:
    """Return the matrix in words: the results of the newest build that ran."""
    if not rows:
        return ""
    tests, columns = words.count(len(rows), "test"), words.count(len(builds), "build")
    text = f"{tests} on {columns} of {words.brief(branch or '')}."
    for place, newest in enumerate(builds):
        if ran := sum(row.cells[place] is not None for row in rows):
            hollow = words.count(newest.hollow, "hollow pass", "hollow passes")
            text += f" On {words.brief(newest.name)}, the newest that ran: {hollow} and"
            return f"{text} {newest.red:,} red of {words.count(ran, 'test')}."
    return text

"""Read model of the build matrix: tests by builds of a branch, newest build first."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
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
from gonogo_service.tests import annotations as axis_changes
from gonogo_service.tests import matrices as reads
from gonogo_service.tests import test_list
from gonogo_service.tests.matrices import GRADES, BuildRecord, CellPlace, RowRecord
from gonogo_service.tests.test_list import TestHead

FILTERS = (
    *("branch", "arch", "board", "kernel"),
    *("verdict", "label", "suite", "grade", "until"),
)
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
        by_column: dict[int, str] = {}
        for event in self.events:
            place = round(event.place)
            known = by_column.get(place)
            by_column[place] = event.words if known is None else f"{known}; {event.words}"
        return by_column

    @property
    def mixed(self) -> bool:
        """Return whether some cell is hollow and also has a worse verdict."""
        return any(
            cell is not None and cell.hollow and cell.verdict != HOLLOW
            for row in self.rows
            for cell in row.cells
        )


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
    known = reads.builds(session)
    if not known:
        return Glance(None, (), (), "", urls.MATRIX, "")
    branch = _branch(known)
    shown = [build for build in reversed(known) if build.branch == branch][:columns]
    names = [build.name for build in shown]
    worst = test_list.worst(session, branch, tests)
    keys = [test.key for test in worst]
    by_place = reads.cells(session, keys, names, branch=branch) if keys else {}
    rows = _rows_of(worst, names, branch, by_place, entry_names.latest(session, set(keys)))
    heads = tuple(
        _head(build, [row.cells[place] for row in rows], None) for place, build in enumerate(shown)
    )
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
    known = reads.builds(session)
    branches = tuple(dict.fromkeys(build.branch for build in known))
    branch = given.get("branch") or (_branch(known) if known else None)
    ordered = [build for build in reversed(known) if build.branch == branch]
    first = next(
        (place for place, build in enumerate(ordered) if build.name == given.get("until")), 0
    )
    shown, older = ordered[first : first + columns], ordered[first + columns :]
    names = [build.name for build in shown]
    page = _rows(session, names, branch, given, limit, cursor)
    where = {name: given.get(name) for name in ("arch", "board")}
    counts_by_place = (
        reads.cells(session, [test.key for test in page.items], names, branch=branch or "", **where)
        if page.items
        else {}
    )
    entries = entry_names.latest(session, {test.key for test in page.items})
    matrix_rows = _rows_of(page.items, names, branch or "", counts_by_place, entries)
    before = [*(build.name for build in ordered[first + 1 : first + columns + 1]), None]
    heads = tuple(
        _head(build, [row.cells[place] for row in matrix_rows], before[place])
        for place, build in enumerate(shown)
    )
    return MatrixView(
        branch=branch,
        branches=branches if branch in branches or branch is None else (*branches, branch),
        grades=GRADES,
        suites=_with(given.get("suite"), reads.suites(session)),
        builds=heads,
        rows=matrix_rows,
        columns=columns,
        filters=given,
        summary=_summary(heads, matrix_rows, branch),
        older=len(older),
        older_url=urls.matrix({**address, "until": older[0].name}) if older else None,
        newest_url=urls.matrix({**address, "until": None}) if first else None,
        next=page.next,
        next_url=urls.matrix(address, cursor=page.next) if page.next else None,
        json_url=urls.matrix(address, cursor=cursor, as_json=True),
        at=timestamp(now),
        events=_events(session, names, {row.test for row in matrix_rows}),
    )


def _events(
    session: Session, names: Sequence[str], test_keys: Collection[str]
) -> tuple[AxisEvent, ...]:
    """Return the changes between these builds for these tests, the newest first."""
    in_order = names[::-1]
    changes = axis_changes.of_tests(session, in_order, test_keys)
    return tuple(
        replace(event, place=len(names) - 1 - event.place)
        for event in axis_events.of_builds(changes, in_order)
    )[::-1]


def _branch(known: Sequence[BuildRecord]) -> str:
    """Return the branch of the newest job; the emulator's builds, which are no series, are last."""
    return max(known, key=lambda build: (build.branch != EMULATOR, build.newest_job)).branch


def _rows(
    session: Session,
    names: Sequence[str],
    branch: str | None,
    given: Mapping[str, str],
    limit: int,
    cursor: str | None,
) -> Page[RowRecord]:
    verdict = given.get("verdict")
    known = (verdict is None or verdict in words.ordered(WORST_FIRST)) and given.get(
        "grade", GRADES[0]
    ) in GRADES
    if branch is None or not names or not known:
        return Page((), None)
    only = {
        name: given.get(name)
        for name in ("arch", "board", "kernel", "verdict", "label", "suite", "grade")
    }
    return reads.rows(session, names, branch=branch, **only, limit=limit, cursor=cursor or None)


def _rows_of(
    tests: Sequence[RowRecord | TestHead],
    names: Sequence[str],
    branch: str,
    counts_by_place: Mapping[CellPlace, Mapping[str, int]],
    entries: Mapping[str, str],
) -> tuple[MatrixRow, ...]:
    """Return a row for each test and each kind of board that it ran on."""
    kinds: dict[str, set[tuple[str, str]]] = {}
    for place in counts_by_place:
        kinds.setdefault(place.test_key, set()).add((place.arch, place.board))
    ends = [
        urls.further("build", name) for name in names
    ]  # of a thousand addresses only this part differs within a row
    places = [
        (test, arch, board) for test in tests for arch, board in sorted(kinds.get(test.key, ()))
    ]
    names_shown = iter(
        labels(
            [
                Listed(test.canonical, entries.get(test.key), place={"arch": arch, "board": board})
                for test, arch, board in places
            ]
        )
    )
    rows = []
    for test in tests:
        details = details_of(test.canonical, entries.get(test.key))
        about = test.kernel, shape_of(test.canonical), tolerance_of(test.canonical), details
        for arch, board in sorted(kinds.get(test.key, ())):
            url = urls.history(test.key, {"branch": branch, "arch": arch, "board": board})
            stored_counts = (
                counts_by_place.get(CellPlace(test.key, arch, board, name)) for name in names
            )
            cells = tuple(
                _cell(cell_counts, name, url + end) if cell_counts else None
                for cell_counts, name, end in zip(stored_counts, names, ends, strict=True)
            )
            rows.append(MatrixRow(test.key, url, next(names_shown), *about, arch, board, cells))
    return tuple(rows)


def _cell(seeds_by_verdict: Mapping[str, int], build: str, url: str) -> MatrixCell:
    verdict, hollow, lost, seeds, verdict_counts, label, counts_words = _read(
        tuple(seeds_by_verdict.items())
    )
    return MatrixCell(
        verdict,
        hollow,
        lost,
        seeds,
        verdict_counts,
        f"{label} on {build}: {counts_words}",
        counts_words,
        url,
    )


@lru_cache(maxsize=4096)
def _read(
    items: tuple[tuple[str, int], ...],
) -> tuple[str, bool, int, int, tuple[Count, ...], str, str]:
    """Return the parts of a cell from its seeds by verdict; most cells of a matrix are alike."""
    by_verdict = dict(items)
    verdict, seeds = verdict_of(by_verdict), sum(by_verdict.values())
    verdict_counts = counts(by_verdict, max(1, seeds))
    counts_words = ", ".join(f"{count.count:,} {count.label}" for count in verdict_counts)
    lost = sum(by_verdict.get(verdict_lost, 0) for verdict_lost in LOST)
    return (
        verdict,
        bool(by_verdict.get(HOLLOW)),
        lost,
        seeds,
        verdict_counts,
        words.mark(verdict).label,
        counts_words,
    )


def _with(requested: str | None, known: Sequence[str]) -> tuple[str, ...]:
    return tuple(known) if requested is None or requested in known else (*known, requested)


def _head(
    build: BuildRecord, cells: Sequence[MatrixCell | None], before: str | None
) -> MatrixBuild:
    hollow = sum(cell is not None and cell.hollow for cell in cells)
    red = sum(cell is not None and cell.verdict in RED for cell in cells)
    compared = None if before is None else urls.compare(before, build.name)
    return MatrixBuild(
        build.name, urls.jobs({"build": build.name}), build.sequence, hollow, red, compared
    )


def _summary(builds: Sequence[MatrixBuild], rows: Sequence[MatrixRow], branch: str | None) -> str:
    """Return the matrix in words: the results of the newest build that ran."""
    if not rows:
        return ""
    text = (
        f"{words.count(len(rows), 'test')} on {words.count(len(builds), 'build')}"
        f" of {words.brief(branch or '')}."
    )
    place = next(
        (place for place in range(len(builds)) if any(row.cells[place] for row in rows)), None
    )
    if place is None:
        return text
    newest, ran = builds[place], sum(row.cells[place] is not None for row in rows)
    findings = words.count(newest.hollow, "hollow pass", "hollow passes")
    findings += f" and {newest.red:,} red"
    name, tests = words.brief(newest.name), words.count(ran, "test")
    return f"{text} On {name}, the newest that ran: {findings} of {tests}."

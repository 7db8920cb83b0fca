"""Read model of the build matrix: tests by builds of a branch, newest build first, a cell by what its
seeds say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.spec.verdicts import WORST_FIRST, Verdict
from gonogo_dashboards.kit import words
from gonogo_dashboards.kit.list_rows import Count, counts, shape_of, tolerance_of
from gonogo_storage.comparison import matrices as reads
from gonogo_storage.comparison.matrices import GRADES, BuildRecord, CellPlace, RowRecord
from gonogo_storage.db.encoding import timestamp
from gonogo_storage.db.paging import Page

FILTERS = ("branch", "arch", "board", "kernel", "verdict", "label", "suite", "grade", "until")
BUILDS, MAX_BUILDS = 20, 60
"""Columns, unless asked for more, and at most."""
LOST = (Verdict.error, Verdict.crash, Verdict.hang)
"""They say nothing of the kernel: they fill a cell only where nothing else is known, else they are
its corner."""
HOLLOW = Verdict.pass_by_tolerance
RED = (Verdict.fail, Verdict.fail_by_tolerance)


@dataclass(frozen=True)
class MatrixBuild:
    """A column: a build, how many of the rows shown are hollow or red on it, and the page that
    compares it with the build before it.
    """

    name: str
    url: str
    sequence: int
    hollow: int
    red: int
    compare_url: str | None


@dataclass(frozen=True)
class MatrixCell:
    """A test on a build: the worst verdict of its seeds, hangs, crashes and errors (`lost`) apart;
    `hollow`: some seed is.
    """

    verdict: str
    hollow: bool
    lost: int
    seeds: int
    counts: tuple[Count, ...]
    words: str
    url: str


@dataclass(frozen=True)
class MatrixRow:
    """A test on one kind of board; a cell per column, None where it did not run."""

    test: str
    url: str
    kernel: str
    shape: str
    tolerance: str
    arch: str
    board: str
    cells: tuple[MatrixCell | None, ...]


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
    twin: str
    at: str | None

    @property
    def mixed(self) -> bool:
        """Whether a cell is hollow and worse."""
        return any(
            cell is not None and cell.hollow and cell.verdict != HOLLOW
            for row in self.rows
            for cell in row.cells
        )


def read(
    session: Session,
    query: Mapping[str, str],
    cursor: str | None,
    limit: int,
    columns: int,
    now: datetime,
) -> MatrixView:
    """The matrix of one branch: of `branch`, else of the branch that a job was submitted to
    last. Raises gonogo_storage.db.paging.BadCursor.
    """
    given = {name: value for name in FILTERS if (value := query.get(name, "").strip())}
    asked = {**given, "builds": str(columns) if columns != BUILDS else ""}
    known = reads.builds(session)
    branches = tuple(dict.fromkeys(each.branch for each in known))
    branch = (
        given.get("branch") or max(known, key=lambda each: each.newest_job).branch
        if known
        else given.get("branch")
    )
    ordered = [each for each in reversed(known) if each.branch == branch]
    first = next(
        (place for place, each in enumerate(ordered) if each.name == given.get("until")), 0
    )
    shown, older = ordered[first : first + columns], ordered[first + columns :]
    names = [each.name for each in shown]
    page = _rows(session, names, branch, given, limit, cursor)
    where = {name: given.get(name) for name in ("arch", "board")}
    found = (
        reads.cells(session, [each.key for each in page.items], names, branch=branch or "", **where)
        if page.items
        else {}
    )
    made = _rows_of(page.items, names, branch or "", found)
    before = [*(each.name for each in ordered[first + 1 : first + columns + 1]), None]
    heads = tuple(
        _head(each, [row.cells[place] for row in made], before[place])
        for place, each in enumerate(shown)
    )
    return MatrixView(
        branch=branch,
        branches=branches if branch in branches or branch is None else (*branches, branch),
        grades=GRADES,
        suites=_with(given.get("suite"), reads.suites(session)),
        builds=heads,
        rows=made,
        columns=columns,
        filters=given,
        summary=_summary(heads, made, branch),
        older=len(older),
        older_url=urls.matrix({**asked, "until": older[0].name}) if older else None,
        newest_url=urls.matrix({**asked, "until": None}) if first else None,
        next=page.next,
        next_url=urls.matrix(asked, cursor=page.next) if page.next else None,
        twin=urls.matrix(asked, cursor=cursor, as_json=True),
        at=timestamp(now),
    )


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
    tests: Sequence[RowRecord],
    names: Sequence[str],
    branch: str,
    found: Mapping[CellPlace, Mapping[str, int]],
) -> tuple[MatrixRow, ...]:
    """Of each test a row for each kind of board that it ran on."""
    kinds: dict[str, set[tuple[str, str]]] = {}
    for place in found:
        kinds.setdefault(place.test_key, set()).add((place.arch, place.board))
    ends = [
        urls.further("build", name) for name in names
    ]  # a thousand addresses, of which only this part differs within a row
    made = []
    for test in tests:
        about = test.kernel, shape_of(test.canonical), tolerance_of(test.canonical)
        for arch, board in sorted(kinds.get(test.key, ())):
            url = urls.history(test.key, {"branch": branch, "arch": arch, "board": board})
            told = (found.get(CellPlace(test.key, arch, board, name)) for name in names)
            cells = tuple(
                _cell(each, name, url + end) if each else None
                for each, name, end in zip(told, names, ends, strict=True)
            )
            made.append(MatrixRow(test.key, url, *about, arch, board, cells))
    return tuple(made)


def _cell(told: Mapping[str, int], build: str, url: str) -> MatrixCell:
    verdict, hollow, lost, seeds, found, label, said = _read(tuple(told.items()))
    return MatrixCell(verdict, hollow, lost, seeds, found, f"{label} on {build}: {said}", url)


@lru_cache(maxsize=4096)
def _read(
    told: tuple[tuple[str, int], ...],
) -> tuple[str, bool, int, int, tuple[Count, ...], str, str]:
    """What seeds by verdict say, whatever test and build they are of: most cells of a matrix are
    alike.
    """
    by_verdict = dict(told)
    verdict, seeds = verdict_of(by_verdict), sum(by_verdict.values())
    found = counts(by_verdict, max(1, seeds))
    said = ", ".join(f"{each.count:,} {each.label}" for each in found)
    lost = sum(by_verdict.get(each, 0) for each in LOST)
    return (
        verdict,
        bool(by_verdict.get(HOLLOW)),
        lost,
        seeds,
        found,
        words.mark(verdict).label,
        said,
    )


def verdict_of(told: Mapping[str, int]) -> str:
    """The worst verdict of seeds by verdict, of hangs, crashes and errors only where there is
    nothing else.
    """
    ordered = [verdict for verdict in words.ordered(told) if told[verdict]]
    return next(
        (verdict for verdict in ordered if verdict not in LOST),
        ordered[0] if ordered else Verdict.not_run,
    )


def _with(asked: str | None, known: Sequence[str]) -> tuple[str, ...]:
    return tuple(known) if asked is None or asked in known else (*known, asked)


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
    """The matrix in words: what the newest build with results says."""
    if not rows:
        return ""
    said = f"{words.count(len(rows), 'test')} on {words.count(len(builds), 'build')} of {words.brief(branch or '')}."
    place = next(
        (place for place in range(len(builds)) if any(row.cells[place] for row in rows)), None
    )
    if place is None:
        return said
    newest, ran = builds[place], sum(row.cells[place] is not None for row in rows)
    found = f"{newest.hollow:,} {'is' if newest.hollow == 1 else 'are'} hollow, {newest.red:,} {'is' if newest.red == 1 else 'are'} red"
    return f"{said} On {words.brief(newest.name)}, the newest that ran, {found} of {ran:,}."

"""The rows and columns of the build matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.flakiness.classes import LOST
from gonogo_dashboards.kit import words
from gonogo_dashboards.kit.build_cells import seeds_of
from gonogo_dashboards.kit.labels import Listed, labels
from gonogo_dashboards.kit.list_rows import details_of, shape_of, tolerance_of
from gonogo_service.tests import entry_names, matrices
from gonogo_service.tests.matrices import BuildRecord, Place
from gonogo_service.tests.model import TestSpecRow
from gonogo_service.tests.recent_builds import BuildResult
from gonogo_service.tests.variants import Variant


@dataclass(frozen=True)
class MatrixBuild:
    """A column: a build, and its hollow and red rows.

    `compare_url` leads to the comparison with the build before it.
    """

    name: str
    began: str
    """When the first of its jobs ended."""
    commit: str
    author: str
    """The author of its commit, else who submitted its newest job."""
    sequence: int
    hollow: int
    red: int
    compare_url: str | None

    @property
    def about(self) -> str:
        """Return the sentence that hovering shows."""
        commit = f"commit {self.commit[:12]}, " if self.commit not in ("–", self.name) else ""
        about = f"{self.name}: {self.began}, {commit}{self.author}"
        return f"{about}. Compare it with another build."


@dataclass(frozen=True)
class MatrixCell:
    """A test on a build: the worst verdict of its seeds.

    `lost` counts hangs, crashes and errors separately. `hollow`: some seed is a hollow pass; `red`:
    some seed fails.
    """

    verdict: str
    hollow: bool
    red: bool
    lost: int
    seeds: int
    words: str
    """The seeds by verdict: "4 hollow pass, 1 fail"."""


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


def rows_of(session: Session, tests: Sequence[TestSpecRow], place: Place) -> tuple[MatrixRow, ...]:
    """Return a row for each test and each kind of board that it ran on."""
    keys = [test.key for test in tests]
    by_cell = matrices.cells(session, keys, place) if keys else {}
    entries = entry_names.latest(session, set(keys))
    kinds: dict[str, set[tuple[str, str]]] = {}
    for variant, _ in by_cell:
        kinds.setdefault(variant.test_key, set()).add((variant.arch, variant.board))
    ran = [(test, *kind) for test in tests for kind in sorted(kinds.get(test.key, ()))]
    listed = [
        Listed(test.test, entries.get(test.key), place={"arch": arch, "board": board})
        for test, arch, board in ran
    ]
    rows = []
    for (test, arch, board), label in zip(ran, labels(listed), strict=True):
        key, form = test.key, test.test
        about = shape_of(form), tolerance_of(form), details_of(form, entries.get(key))
        variant = Variant(key, place.branch, arch, board)
        url = urls.history(key, variant.place)
        results = (by_cell.get((variant, name)) for name in place.builds)
        cells = tuple(_cell(one) if one else None for one in results)
        rows.append(MatrixRow(key, url, label, test.kernel, *about, arch, board, cells))
    return tuple(rows)


def _cell(result: BuildResult) -> MatrixCell:
    verdict, text = seeds_of(tuple(result.counts.items()))
    lost, seeds = sum(result.counts.get(one, 0) for one in LOST), sum(result.counts.values())
    return MatrixCell(verdict, result.hollow, result.red, lost, seeds, text)


def heads_of(
    builds: Sequence[BuildRecord],
    rows: Sequence[MatrixRow],
    older: BuildRecord | None = None,
) -> tuple[MatrixBuild, ...]:
    """Return the columns; older: the build that the last one is compared with."""
    heads = []
    for place, (build, base) in enumerate(zip(builds, [*builds, older][1:], strict=True)):
        cells = [cell for row in rows if (cell := row.cells[place])]
        hollow, red = (sum(getattr(one, kind) for one in cells) for kind in ("hollow", "red"))
        compared = None if base is None else urls.compare(base.name, build.name)
        about = words.moment(build.began_at), build.commit or "–", build.by
        heads.append(MatrixBuild(build.name, *about, build.sequence, hollow, red, compared))
    return tuple(heads)


def summary(builds: Sequence[MatrixBuild], rows: Sequence[MatrixRow], branch: str | None) -> str:
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

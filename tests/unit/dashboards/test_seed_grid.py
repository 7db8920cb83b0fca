"""The grid of a job's seeds: the order of its cells, bands of large jobs, and its words."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from gonogo.spec.verdicts import Verdict
from gonogo_dashboards.jobs import seed_grid
from gonogo_dashboards.jobs.seed_grid import LETTERS, NONE_YET, GridView
from gonogo_service.kit.database.states import JobState
from gonogo_service.results import grid as reads
from gonogo_service.results.seed_order import SeedOrder

VERDICTS = {letter: Verdict(name) for name, letter in LETTERS.items()}
SIX = {"start": 0, "count": 6}


def view(seeds: Any, letters: str, **changes: Any) -> GridView:
    """Return the grid of a job whose (seed, repeat) have these verdicts, in order."""
    usual = {"repeats": 1, "state": JobState.running, "added_seeds": (), "sequential": None}
    job: Any = SimpleNamespace(**{"seeds": seeds, **usual, **changes})
    order = SeedOrder.of(job.seeds, job.repeats, job.added_seeds)
    length = len(letters) if job.sequential is not None else len(order)
    width = reads._width(length, seed_grid.MAX_CELLS)
    starts = range(0, length, width)
    cells = [reads.Cell(start, min(start + width, length)) for start in starts]
    for place, letter in enumerate(letters):
        if letter != NONE_YET:
            reads._count(cells[place // width], place, VERDICTS[letter], 1)
    job.counts = Counter(str(VERDICTS[letter]) for letter in letters if letter != NONE_YET)
    job.done = job.counts.total()
    return seed_grid.view(job, reads.Grid(order, length, width, tuple(cells)), "seed")


def test_every_verdict_has_a_letter_of_its_own_and_none_means_nothing() -> None:
    assert set(LETTERS) == set(Verdict)
    assert len(set(LETTERS.values()) | {NONE_YET}) == len(Verdict) + 1


@pytest.mark.parametrize(
    ("order", "pairs"),
    [
        (SeedOrder.of({"start": 5, "count": 2}, 2, ()), [(5, 0), (5, 1), (6, 0), (6, 1)]),
        (SeedOrder.of([9, 2, 5], 1, [10]), [(2, 0), (5, 0), (9, 0), (10, 0)]),
        (SeedOrder.of({"start": 0, "max": 3}, 1, ()), [(0, 0), (1, 0), (2, 0)]),
    ],
)
def test_places_and_seeds_are_each_others_inverse(
    order: SeedOrder, pairs: list[tuple[int, int]]
) -> None:
    assert [order.at(place) for place in range(len(order))] == pairs
    assert [order.place(*pair) for pair in pairs] == list(range(len(order)))
    assert order.place(999, 0) is order.place(pairs[0][0], 7) is None


@pytest.mark.parametrize(
    ("letters", "state", "cells", "summary"),
    [
        ("p.f", JobState.running, "p.f...", "2 of 6 seeds: 1 fail, 1 pass. 4 unfinished."),
        ("p.f", JobState.cancelled, "p.f...", "2 of 6 seeds: 1 fail, 1 pass. 4 never ran."),
        ("", JobState.failed, "......", "No seed ever ran."),
    ],
)
def test_a_cell_waits_until_its_seed_has_come(
    letters: str, state: JobState, cells: str, summary: str
) -> None:
    grid = view(SIX, letters, state=state)
    assert (grid.cells, grid.summary) == (cells, summary)
    assert [(cell.seed, cell.verdict) for cell in grid.table] == [(2, "fail")] * bool(letters)


@pytest.mark.parametrize(
    ("seeds", "letters", "changes", "cells", "named"),
    [
        ([9, 2, 5], "pp", {}, "pp.", (2, 5, 9)),
        ({"start": 3, "count": 2}, "pppp", {"repeats": 2}, "pppp", (3, 3, 4, 4)),
        ({"start": 0, "count": 2}, "sp", {"added_seeds": (70,)}, "sp.", (0, 1, 70)),
        ({"start": 0, "max": 90_000}, "pp", {"sequential": {"max": 90_000}}, "pp", ()),
    ],
)
def test_cells_of_lists_repeats_and_sequential_jobs_name_their_seeds(
    seeds: Any, letters: str, changes: dict[str, Any], cells: str, named: tuple[int, ...]
) -> None:
    grid = view(seeds, letters, **changes)
    assert (grid.cells, grid.seeds, grid.width) == (cells, named, 1)


def test_of_a_hundred_thousand_seeds_bands_are_drawn_by_their_worst() -> None:
    grid = view({"start": 7, "count": 100_000}, "p" * 60_013 + "t" + "p" * 6 + "f")
    assert (grid.width, len(grid.cells)) == (20, 5_000)
    assert grid.cells[3000:3003] == f"tf{NONE_YET}"
    assert (grid.worst[3000], grid.worst[3001]) == ((7 + 60_013, 0), (7 + 60_020, 0))
    assert [(cell.first, cell.last, cell.finished, cell.of, cell.seed) for cell in grid.table] == [
        (60_027, 60_046, 1, 20, 60_027),
        (60_007, 60_026, 20, 20, 60_020),
    ]
    assert grid.summary.endswith("Each mark shows the worst of 20 consecutive seeds.")
    drawn = seed_grid.drawn(grid, "/jobs/1", None)
    assert {mark[0] for mark in drawn["marks"].values()} == {"fail", "pass_by_tolerance", "pass"}

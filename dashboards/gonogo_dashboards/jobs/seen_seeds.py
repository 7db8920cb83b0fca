"""The seeds of a job on its page: the worst ones, its plot and its grid, its outputs.

The numbers and plots of ended jobs are cached. Results that come late add an event to their job,
and the number of its last event is part of the cache's key.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.orm import Session

from gonogo.judging.flip_summary import FlipsSummary
from gonogo.spec.diagnoses import JobDiagnosis
from gonogo_dashboards.charts import plots
from gonogo_dashboards.charts.plots import SeedPlot
from gonogo_dashboards.jobs import seed_grid
from gonogo_dashboards.jobs.seed_grid import GridView
from gonogo_dashboards.kit import arithmetic_view, commands
from gonogo_dashboards.kit.arithmetic_view import ArithmeticLine
from gonogo_dashboards.kit.cache import LRUCache
from gonogo_service.jobs.model import JobRow
from gonogo_service.results import arithmetics, flips, tallies, worst
from gonogo_service.results.model import WHOLE
from gonogo_service.results.seeds import StoredSeed

WORST_SEEDS = 12
MAX_TABS = 12
"""Outputs to choose on the page: the worst where there are more."""
_CACHED = 32
"""Ended jobs whose seeds and plots are kept, about 0.3 MB each."""


@dataclass(frozen=True)
class _Numbers:
    """The parts that take time to read, whatever output is shown."""

    worst: list[StoredSeed]
    flips: tuple[FlipsSummary, ...]
    arithmetic: tuple[ArithmeticLine, ...]
    grid: GridView


_numbers: LRUCache[_Numbers] = LRUCache(_CACHED)
_plots: LRUCache[SeedPlot] = LRUCache(_CACHED)


@dataclass(frozen=True)
class SeenSeeds(_Numbers):
    """The same, with the outputs to choose from, the chosen one and its plot."""

    outputs: tuple[str, ...]
    chosen: str
    plot: SeedPlot | None

    @property
    def first(self) -> StoredSeed | None:
        """Return the worst seed, if any has numbers or a message."""
        return self.worst[0] if self.worst else None


def read(session: Session, row: JobRow, output: str | None, noun: str) -> SeenSeeds:
    """Read what a job's seeds show; output: the one of the plot, None for the worst."""
    is_kernel, has_rows = not row.is_selection, row.seeds_removed_at is None
    sums = tallies.of_job(session, row.id)
    outputs = {name: tally for name, tally in sums.items() if name != WHOLE}

    def read_numbers() -> _Numbers:
        count = WORST_SEEDS if is_kernel else 1
        return _Numbers(
            worst.read(session, row.id, count) if is_kernel or outputs else [],
            flips.of_job(session, row.id) if row.reference and has_rows else (),
            arithmetic_view.of_job(arithmetics.of_job(session, row.id), noun),
            seed_grid.read(session, row, noun),
        )

    fixed = (row.id, row.version, row.last_event, row.done) if row.state.final else None
    numbers = _numbers.get(fixed, read_numbers)
    assert numbers is not None
    first = numbers.worst[0] if numbers.worst else None
    chosen = plots.choose(outputs, output, next(iter(first.outputs), None) if first else None)
    plot = None
    if row.done and has_rows and (is_kernel or chosen):
        key = fixed and (*fixed, chosen)
        plot = _plots.get(key, lambda: plots.read(session, row, chosen, sums, noun))
    tabs = sorted(plots.worst_first(outputs)[:MAX_TABS]) if len(outputs) > MAX_TABS else outputs
    return SeenSeeds(**vars(numbers), outputs=tuple(tabs), chosen=chosen, plot=plot)


def of_command(session: Session, row: JobRow, seen: SeenSeeds) -> int:
    """Return the seed of the command that reproduces the job: the worst, else the first."""
    if seen.first is not None:
        return seen.first.seed
    iteration = worst.worst_iteration(session, row.id) if row.is_selection else None
    return commands.first_seeds(row)[0] if iteration is None else iteration


def of_map(diagnosed: JobDiagnosis | None, seen: SeenSeeds) -> list[tuple[int, int]]:
    """Return the seeds whose map is shown, if they have one: the diagnosis' first."""
    pairs = [(seed.seed, seed.repeat) for seed in seen.worst]
    if diagnosed is not None and diagnosed.seed is not None:
        pairs.insert(0, (diagnosed.seed, diagnosed.repeat or 0))
    return list(dict.fromkeys(pairs))

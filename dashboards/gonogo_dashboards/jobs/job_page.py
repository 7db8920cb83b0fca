"""The page of a job: the stored row, and what the page adds to it. Its JSON version shares it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.judging.flip_summary import FlipsSummary
from gonogo.spec.diagnoses import JobDiagnosis
from gonogo.spec.selections import KERNEL
from gonogo_dashboards.charts import plots
from gonogo_dashboards.charts.plots import SeedPlot
from gonogo_dashboards.hooks.incoming import OriginLine, origins
from gonogo_dashboards.jobs import (
    diagnosis,
    error_maps,
    job_logs,
    request,
    seed_details,
    seed_grid,
    selection_tests,
)
from gonogo_dashboards.jobs.error_maps import MapView
from gonogo_dashboards.jobs.job_logs import LogView, TelemetryView
from gonogo_dashboards.jobs.seed_details import ComparisonLine, SeedDetails, SeedLine
from gonogo_dashboards.jobs.seed_grid import GridView
from gonogo_dashboards.jobs.selection_tests import Part, TestsView
from gonogo_dashboards.kit import (
    arithmetic_view,
    build_cells,
    commands,
    comparators_view,
    imported,
    words,
)
from gonogo_dashboards.kit.arithmetic_view import ArithmeticLine
from gonogo_dashboards.kit.cache import LRUCache
from gonogo_dashboards.kit.imported import ImportedView
from gonogo_dashboards.kit.list_rows import JobLine, job_line
from gonogo_service.builds import entry_names
from gonogo_service.devices.store import TIMEOUT_S
from gonogo_service.jobs import artifacts, job_attempts, queue_estimate, queues, store
from gonogo_service.jobs import selection_tests as stored_tests
from gonogo_service.jobs.model import ArtifactRow, AttemptRow, JobRow, SeedDecision, SuspectSeeds
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.kit.database.records import from_object
from gonogo_service.results import arithmetics, flips, tallies, worst
from gonogo_service.results.model import WHOLE
from gonogo_service.results.seeds import StoredSeed
from gonogo_service.results.tallies import Tally

FIRST_TESTS = Part()
WORST_SEEDS = 12
MAX_TABS = 12
"""Outputs to choose on the page: the worst where there are more."""
_CACHED = 32
"""Finished jobs whose seeds and plots are cached, about 0.3 MB each."""


@dataclass(frozen=True)
class _Seeds:
    """What the seeds of a job say: the worst ones, the flips and the arithmetics."""

    worst: list[StoredSeed]
    flips: tuple[FlipsSummary, ...]
    arithmetic: tuple[ArithmeticLine, ...]


_seeds: LRUCache[_Seeds] = LRUCache(_CACHED)
_plots: LRUCache[SeedPlot] = LRUCache(_CACHED)
_grids: LRUCache[GridView] = LRUCache(_CACHED)


@dataclass(frozen=True)
class UnservedQueue:
    """A queue without a live worker, the command that starts one, and when the job gives up."""

    queue: str
    command: str
    deadline_at: str


@dataclass(frozen=True)
class JobView:
    """Everything on a job's page."""

    job: JobLine
    verdict: str | None  # before the job has one: the worst so far
    sentence: str
    error: str | None
    notes: tuple[str, ...]
    """The result of sequential and suspect seeds."""
    unserved: UnservedQueue | None
    """Its queue, where it waits and no live worker serves that."""
    removed: tuple[str, ...]
    """Sentences about the results that retention removed."""
    has_rows: bool
    """Whether its results per seed are still there, or were never any."""
    at_most: bool
    stop: SeedDecision | None
    suspects: SuspectSeeds | None
    test: Mapping[str, Any]
    test_key: str
    test_url: str
    facts: tuple[tuple[str, str], ...]
    outputs: tuple[str, ...]
    tests: TestsView | None
    """For a selection; its plot and its worst seeds are of arrays that tests handed over."""
    grid: GridView | None
    """None once retention has removed it."""
    seed: SeedDetails | None
    """The details of the (seed, repeat) that the address names."""
    plot: SeedPlot | None
    map: MapView | None
    diagnosis: JobDiagnosis | None
    arithmetic: tuple[ArithmeticLine, ...]
    """The arithmetics of its outputs."""
    worst: tuple[SeedLine, ...]
    reference: str | None
    comparison: tuple[ComparisonLine, ...]
    flips: tuple[FlipsSummary, ...]
    """The outputs that differ from the reference build's, counted over all seeds."""
    artifacts: tuple[ArtifactRow, ...]
    attempts: tuple[AttemptRow, ...]
    log: LogView | None
    stopped: str
    """The end of its worst seed where that crashed, hung or met an error; "" otherwise."""
    decided: str
    """The comparators that decided its worst seed; "" where allclose is its only comparator."""
    last_lines: str
    """The end of the log where a seed crashed, hung or met an error; "" otherwise."""
    telemetry: TelemetryView | None
    imported: ImportedView | None
    check: str | None
    """None for an imported job: nothing here can run it."""
    origins: tuple[OriginLine, ...]
    resubmit_of: str | None
    last_event: int
    links: Mapping[str, str]
    at: str | None


def job(
    session: Session,
    job_id: str,
    output: str | None,
    now: datetime,
    pair: tuple[int, int] | None = None,
    part: Part = FIRST_TESTS,
    timeout_s: float = TIMEOUT_S,
) -> JobView | None:
    """Return a job's page; None where there is no such job.

    output: the output of its plot; None chooses the worst. pair: a (seed, repeat) whose details are
    shown. part: the part of a selection's tests. timeout_s: a worker that is silent for longer
    isn't live.
    """
    row = store.get(session, job_id)
    if row is None:
        return None
    entry = entry_names.latest(session, [row.test_key]).get(row.test_key)
    line = replace(
        job_line(row, now, entry),
        waiting_reason=row.waiting_reason or queues.behind(session, row),
    )
    tests = selection_tests.read(session, row, part, output)
    sums = tallies.of_job(session, job_id)
    outputs = _outputs(session, row, sums)
    has_rows, is_kernel = row.seeds_removed_at is None, tests is None
    # a job whose seeds can't change: rows never do, and one that comes late has its own event
    fixed = (row.id, row.version, row.last_event, row.done) if row.state.final else None
    seen = _seeds.get(fixed, lambda: _read_seeds(session, row, outputs, line.noun))
    assert seen is not None
    first = seen.worst[0] if seen.worst else None
    chosen = plots.choose(outputs, output, next(iter(first.outputs), None) if first else None)
    plot = None
    if row.done and has_rows and (is_kernel or chosen):
        key = fixed and (*fixed, chosen)
        plot = _plots.get(key, lambda: plots.read(session, row, chosen, sums, line.noun))
    tabs = sorted(plots.worst_first(outputs)[:MAX_TABS]) if len(outputs) > MAX_TABS else outputs
    so_far = next(iter(words.ordered(name for name, count in row.counts.items() if count)), None)
    verdict = row.verdict if row.state.final else so_far
    lost = verdict in build_cells.LOST
    tolerance = row.test.get("tolerance", {})
    diagnosed = diagnosis.read(session, row)
    heads = artifacts.list_(session, job_id)
    log = job_logs.log(session, job_id, heads, pair)
    attempts = job_attempts.for_page(session, job_id)
    return from_object(
        JobView,
        row,
        job=line,
        verdict=verdict,
        sentence=words.sentence(verdict),
        notes=request.notes(row),
        unserved=_unserved(session, row, now, timeout_s),
        has_rows=has_rows,
        at_most=request.at_most(row),
        test_url=urls.history(
            row.test_key, {"branch": row.branch, "arch": row.arch, "board": row.board}
        ),
        facts=request.facts(row),
        outputs=tuple(tabs),
        tests=tests,
        plot=plot,
        grid=_grids.get(fixed, lambda: seed_grid.read(session, row, line.noun)),
        seed=seed_details.read(session, row, pair, output) if pair and has_rows else None,
        map=error_maps.read(session, job_id, heads, chosen, pair, _mapped(diagnosed, seen.worst)),
        diagnosis=diagnosed,
        arithmetic=seen.arithmetic,
        worst=tuple(seed_details.worst_line(seed, tolerance) for seed in seen.worst)
        if is_kernel
        else (),
        comparison=seed_details.compared(seen.worst) if is_kernel else (),
        flips=seen.flips,
        artifacts=tuple(heads),
        attempts=tuple(attempts),
        log=log,
        stopped=comparators_view.stopped(seen.worst) if lost else "",
        decided=comparators_view.of_seed(first, tolerance) if first and is_kernel else "",
        last_lines=job_logs.last_lines(log, attempts) if lost else "",
        telemetry=job_logs.telemetry(session, job_id),
        imported=imported.read(row),
        check=request.check(row, _shown_seed(session, row, first), chosen),
        origins=origins(session, job=job_id),
        links={
            "self": urls.job(job_id),
            "json_url": urls.job(job_id, as_json=True),
            "events": urls.events(job_id),
            "cancel": urls.cancel(job_id),
            "resubmit": urls.resubmit(job_id),
            **{form: urls.results(job_id, form) for form in urls.FILES},
            "diagnosis": urls.diagnosis(job_id),
        },
        at=timestamp(now),
    )


def _outputs(session: Session, row: JobRow, sums: Mapping[str, Tally]) -> dict[str, Tally]:
    """Return the sums of the outputs that have numbers."""
    outputs = {name: tally for name, tally in sums.items() if name != WHOLE}
    if row.kernel != KERNEL:
        judged = stored_tests.judged_outputs(session, row.id)
        outputs = {name: tally for name, tally in outputs.items() if name in judged}
    return outputs


def _read_seeds(session: Session, row: JobRow, outputs: Mapping[str, Tally], noun: str) -> _Seeds:
    is_kernel = row.kernel != KERNEL
    return _Seeds(
        worst.read(session, row.id, WORST_SEEDS if is_kernel else 1)
        if is_kernel or outputs
        else [],
        flips.of_job(session, row.id) if row.reference and row.seeds_removed_at is None else (),
        arithmetic_view.of_job(arithmetics.of_job(session, row.id), noun),
    )


def _shown_seed(session: Session, row: JobRow, first: StoredSeed | None) -> int:
    """Return the seed of the command: the worst, else the first."""
    found = first.seed if first else None
    if found is None and row.kernel == KERNEL:
        found = worst.worst_iteration(session, row.id)
    return commands.first_seeds(row)[0] if found is None else found


def _mapped(diagnosed: JobDiagnosis | None, seeds: list[StoredSeed]) -> list[tuple[int, int]]:
    """Return the seeds whose map is shown, if they have one: the diagnosis' first."""
    pairs = [(seed.seed, seed.repeat) for seed in seeds]
    if diagnosed is not None and diagnosed.seed is not None:
        pairs.insert(0, (diagnosed.seed, diagnosed.repeat or 0))
    return list(dict.fromkeys(pairs))


def _unserved(
    session: Session, row: JobRow, now: datetime, timeout_s: float
) -> UnservedQueue | None:
    if not queue_estimate.unserved(session, row, timeout_s=timeout_s, now=now):
        return None
    command = queue_estimate.start_command(row.queue)
    return UnservedQueue(row.queue, command, timestamp(row.deadline_at))

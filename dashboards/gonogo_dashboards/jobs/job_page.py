"""The page of a job: the stored row, and what the page adds to it. Its JSON version shares it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.flakiness.classes import LOST
from gonogo.judging.flip_summary import FlipsSummary
from gonogo.spec.diagnoses import JobDiagnosis
from gonogo_dashboards.charts.plots import SeedPlot
from gonogo_dashboards.hooks.incoming import OriginLine, origins
from gonogo_dashboards.jobs import (
    diagnosis,
    error_maps,
    job_logs,
    request,
    seed_details,
    seen_seeds,
    selection_tests,
)
from gonogo_dashboards.jobs.error_maps import MapView
from gonogo_dashboards.jobs.job_logs import LogView, TelemetryView
from gonogo_dashboards.jobs.seed_details import ComparisonLine, SeedDetails, SeedLine
from gonogo_dashboards.jobs.seed_grid import GridView
from gonogo_dashboards.jobs.selection_tests import Part, TestsView
from gonogo_dashboards.kit import comparators_view, words
from gonogo_dashboards.kit.arithmetic_view import ArithmeticLine
from gonogo_dashboards.kit.list_rows import JobLine, job_line
from gonogo_service.devices.store import TIMEOUT_S
from gonogo_service.jobs import artifacts, job_attempts, queue_estimate, queues, store
from gonogo_service.jobs.model import ArtifactRow, AttemptRow
from gonogo_service.jobs.values import SeedDecision, SuspectSeeds
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.kit.database.records import from_object
from gonogo_service.tests import entry_names
from gonogo_service.tests.variants import Variant

FIRST_TESTS = Part()


@dataclass(frozen=True)
class JobView:
    """Everything on a job's page."""

    job: JobLine
    verdict: str | None  # before the job has one: the worst so far
    error: str | None
    notes: tuple[str, ...]
    """The result of sequential and suspect seeds."""
    unserved: str | None
    """The command that starts a worker, where it waits and no live one serves its queue."""
    deadline_at: datetime
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
    grid: GridView
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
    check: str | None
    """None for an imported job: nothing here can run it."""
    origins: tuple[OriginLine, ...]
    resubmit_of: str | None
    last_event: int
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
        waiting_reason=queues.waiting_reason(session, row, timeout_s=timeout_s, now=now),
    )
    seen = seen_seeds.read(session, row, output, line.noun)
    tests = selection_tests.read(session, row, part, output)
    has_rows, is_kernel = row.seeds_removed_at is None, tests is None
    so_far = next(iter(words.ordered(name for name, count in row.counts.items() if count)), None)
    verdict = row.verdict if row.state.final else so_far
    lost = verdict in LOST
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
        notes=request.notes(row),
        unserved=queues.unserved(session, row, timeout_s=timeout_s, now=now)
        and queue_estimate.start_command(row.queue),
        has_rows=has_rows,
        at_most=request.at_most(row),
        test_url=urls.history(row.test_key, Variant.of(row).place),
        facts=request.facts(row),
        outputs=seen.outputs,
        tests=tests,
        plot=seen.plot,
        grid=seen.grid,
        seed=seed_details.read(session, row, pair, output) if pair and has_rows else None,
        map=error_maps.read(
            session, job_id, heads, seen.chosen, pair, seen_seeds.of_map(diagnosed, seen)
        ),
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
        decided=comparators_view.of_seed(seen.first, tolerance) if seen.first and is_kernel else "",
        last_lines=job_logs.last_lines(log, attempts) if lost else "",
        telemetry=job_logs.telemetry(session, job_id),
        check=request.check(row, seen_seeds.of_command(session, row, seen), seen.chosen),
        origins=origins(session, job=job_id),
        at=timestamp(now),
    )

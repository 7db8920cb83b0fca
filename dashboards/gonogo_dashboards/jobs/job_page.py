"""Read models of the pages of jobs: frozen dataclasses made from stored rows.

A page and its JSON version share them.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.judging.flip_summary import FlipsSummary
from gonogo_dashboards.charts import plots
from gonogo_dashboards.charts.plots import SeedPlot
from gonogo_dashboards.hooks.incoming import OriginLine, origins
from gonogo_dashboards.jobs import (
    diagnosis_view,
    error_maps,
    job_logs,
    reference_comparison,
    seed_details,
    seed_grid,
    sequential_text,
    worst_seeds,
)
from gonogo_dashboards.jobs import selection_tests as reports
from gonogo_dashboards.jobs.diagnosis_view import DiagnosisView
from gonogo_dashboards.jobs.error_maps import MapView
from gonogo_dashboards.jobs.job_logs import LogView, TelemetryView
from gonogo_dashboards.jobs.reference_comparison import ComparisonLine
from gonogo_dashboards.jobs.seed_details import SeedDetails
from gonogo_dashboards.jobs.seed_grid import GridView
from gonogo_dashboards.jobs.selection_tests import TestsView
from gonogo_dashboards.jobs.worst_seeds import SeedLine
from gonogo_dashboards.kit import (
    arithmetic_view,
    build_cells,
    commands,
    comparators_view,
    imported,
    ranges,
    words,
)
from gonogo_dashboards.kit.arithmetic_view import ArithmeticLine
from gonogo_dashboards.kit.cache import LRUCache
from gonogo_dashboards.kit.imported import ImportedView
from gonogo_dashboards.kit.list_rows import JobLine, job_line
from gonogo_service.builds import entry_names
from gonogo_service.devices import store as devices
from gonogo_service.jobs import artifacts as stored_artifacts
from gonogo_service.jobs import job_attempts, queue_estimate, queues, selection_tests
from gonogo_service.jobs import store as stored_jobs
from gonogo_service.jobs.model import JobCommit, JobRow, SuspectSeeds
from gonogo_service.jobs.sequential import SeedDecision
from gonogo_service.jobs.store import JobFilter
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.kit.database.records import from_object
from gonogo_service.results import arithmetics, tallies, worst
from gonogo_service.results.model import WHOLE
from gonogo_service.results.seeds import StoredSeed

WORST_SEEDS = 12
MAX_TABS = 12
"""Outputs to choose on the page: the worst where there are more."""
_CACHED = 32
"""Finished jobs whose worst seeds and plot are cached, about 0.3 MB each."""
_worst: LRUCache[list[StoredSeed]] = LRUCache(_CACHED)
_flips: LRUCache[tuple[FlipsSummary, ...]] = LRUCache(_CACHED)
_arithmetic: LRUCache[tuple[ArithmeticLine, ...]] = LRUCache(_CACHED)
_plots: LRUCache[SeedPlot] = LRUCache(_CACHED)
FILTERS = ("state", "verdict", "build", "test", "label", "owner")
FIRST_TESTS = reports.Part()


@dataclass(frozen=True)
class JobsView:
    """A page of the list of jobs; `next_url` leads to the next one, or is None."""

    items: tuple[JobLine, ...]
    filters: Mapping[str, str]
    range: ranges.Range
    next: str | None
    next_url: str | None
    start: str
    at: str | None


@dataclass(frozen=True)
class ArtifactLine:
    """An artifact to download; size in bytes."""

    id: str
    url: str
    kind: str
    seed: int
    repeat: int
    output: str
    size: int


@dataclass(frozen=True)
class AttemptLine:
    """An attempt that is open, or failed."""

    id: str
    number: int
    state: str
    worker: str | None
    device: str | None
    seed: int | None
    stage: str | None
    error: str | None
    log_tail: str | None
    started_at: datetime | None
    finished_at: datetime | None


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
    diagnosis: DiagnosisView | None
    arithmetic: tuple[ArithmeticLine, ...]
    """The arithmetics of its outputs."""
    worst: tuple[SeedLine, ...]
    reference: str | None
    comparison: tuple[ComparisonLine, ...]
    flips: tuple[FlipsSummary, ...]
    """The outputs that differ from the reference build's, counted over all seeds."""
    artifacts: tuple[ArtifactLine, ...]
    attempts: tuple[AttemptLine, ...]
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


def jobs(
    session: Session, filters: Mapping[str, str], cursor: str | None, limit: int, now: datetime
) -> JobsView:
    """Return a page of jobs that match the filters (FILTERS; empty values are ignored).

    Raises gonogo_service.kit.database.paging.BadCursor.
    """
    given = {name: value for name in FILTERS if (value := filters.get(name, "").strip())}
    period = ranges.of(filters, now, lambda value: urls.jobs({**given, ranges.PARAMETER: value}))
    page = stored_jobs.list_(
        session, JobFilter(**given, since=period.since), limit=limit, cursor=cursor or None
    )
    if period.value != "all":
        given[ranges.PARAMETER] = period.value
    entries = entry_names.latest(session, {job.test_key for job in page.items})
    return JobsView(
        items=tuple(job_line(job, now, entries.get(job.test_key)) for job in page.items),
        filters=given,
        next=page.next,
        next_url=urls.jobs(given, cursor=page.next) if page.next else None,
        range=period,
        start=commands.START,
        at=timestamp(now),
    )


def job(
    session: Session,
    job_id: str,
    output: str | None,
    now: datetime,
    pair: tuple[int, int] | None = None,
    part: reports.Part = FIRST_TESTS,
    timeout_s: float = devices.TIMEOUT_S,
) -> JobView | None:
    """Return a job's page; None where there is no such job.

    output: the output of its plot; None chooses the worst. pair: a (seed, repeat) whose details are
    shown. part: the part of a selection's tests. timeout_s: a worker that is silent for longer
    isn't live.
    """
    stored = stored_jobs.get(session, job_id)
    if stored is None:
        return None
    entry = entry_names.latest(session, [stored.test_key]).get(stored.test_key)
    waiting_reason = stored.waiting_reason or queues.behind(session, stored)
    line = replace(job_line(stored, now, entry), waiting_reason=waiting_reason)
    sums = tallies.of_job(session, job_id)
    outputs = {name: tally for name, tally in sums.items() if name != WHOLE}
    tests = reports.read(session, stored, part, output)
    if tests is not None:
        judged = selection_tests.judged_outputs(session, job_id)
        outputs = {name: tally for name, tally in outputs.items() if name in judged}
    so_far = next(iter(words.ordered(name for name, seeds in stored.counts.items() if seeds)), None)
    verdict = stored.verdict if stored.state.final else so_far
    fixed = _fixed(stored)
    has_numbers = tests is None or bool(outputs)
    listed = (
        _worst.get(
            fixed,
            lambda: worst.read(session, job_id, WORST_SEEDS if tests is None else 1),
        )
        if has_numbers
        else None
    ) or []
    iteration = None if has_numbers else worst.worst_iteration(session, job_id)
    worst_output = None
    if listed:
        iteration = listed[0].seed
        worst_output = next(iter(listed[0].outputs), None)
    chosen = plots.choose(outputs, output, worst_output)
    if len(outputs) > MAX_TABS:
        outputs = {name: outputs[name] for name in sorted(plots.worst_first(outputs)[:MAX_TABS])}
    seed = commands.first_seeds(stored)[0] if iteration is None else iteration
    diagnosis = diagnosis_view.read(session, stored)
    mapped = [(record.seed, record.repeat) for record in listed]
    if diagnosis is not None and diagnosis.seed is not None:
        # the map is of the diagnosis' seed, if that has one
        diagnosed = diagnosis.seed, diagnosis.repeat or 0
        mapped = [diagnosed, *(pair for pair in mapped if pair != diagnosed)]
    heads = stored_artifacts.list_(session, job_id)
    log = job_logs.log(session, job_id, heads, pair)
    attempts = tuple(job_attempts.for_page(session, job_id))
    return JobView(
        job=line,
        verdict=verdict,
        sentence=words.sentence(verdict),
        error=stored.error,
        notes=sequential_text.notes(stored),
        unserved=UnservedQueue(
            stored.queue,
            queue_estimate.start_command(stored.queue),
            str(timestamp(stored.deadline_at)),
        )
        if queue_estimate.unserved(session, stored, timeout_s=timeout_s, now=now)
        else None,
        removed=stored.removed,
        has_rows=stored.seeds_removed_at is None,
        at_most=sequential_text.at_most(stored),
        stop=stored.stop,
        suspects=stored.suspects,
        test=stored.test,
        test_key=stored.test_key,
        test_url=urls.history(
            stored.test_key,
            {
                "branch": stored.branch,
                "arch": stored.target.arch,
                "board": stored.target.board,
            },
        ),
        facts=_facts(stored),
        outputs=tuple(outputs),
        tests=tests,
        plot=_plots.get(
            fixed and (*fixed, chosen),
            lambda: plots.read(session, stored, chosen, sums, line.noun),
        )
        if stored.done and stored.seeds_removed_at is None and (tests is None or chosen)
        else None,
        grid=seed_grid.read(session, stored, line.noun),
        seed=None
        if pair is None or stored.seeds_removed_at is not None
        else seed_details.read(session, stored, pair, output),
        map=error_maps.read(session, job_id, heads, chosen, pair, mapped),
        diagnosis=diagnosis,
        arithmetic=_arithmetic.get(
            fixed,
            lambda: arithmetic_view.of_job(arithmetics.of_job(session, job_id), line.noun),
        )
        or (),
        worst=tuple(worst_seeds.line(seed, stored.test.get("tolerance", {})) for seed in listed)
        if tests is None
        else (),
        reference=stored.reference,
        comparison=reference_comparison.lines(listed) if tests is None else (),
        flips=()
        if stored.seeds_removed_at is not None
        else _flips.get(fixed, lambda: reference_comparison.flip_lines(session, stored)) or (),
        artifacts=tuple(
            from_object(ArtifactLine, head, url=urls.artifact(job_id, head.id)) for head in heads
        ),
        attempts=tuple(from_object(AttemptLine, attempt) for attempt in attempts),
        log=log,
        stopped=comparators_view.stopped(listed) if verdict in build_cells.LOST else "",
        decided=comparators_view.of_seed(listed[0], stored.test.get("tolerance", {}))
        if listed and tests is None
        else "",
        last_lines=job_logs.last_lines(log, attempts) if verdict in build_cells.LOST else "",
        telemetry=job_logs.telemetry(session, job_id),
        imported=imported.read(stored),
        check=seed_details.check(stored, seed, chosen),
        origins=origins(session, job=job_id),
        resubmit_of=stored.resubmit_of,
        last_event=stored.last_event,
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


def _fixed(job: JobRow) -> tuple[Hashable, ...] | None:
    """Return a cache key of a job whose seeds can't change, because it ended; else None.

    Rows never change, and a row that comes late has its own event.
    """
    return (job.id, job.version, job.last_event, job.done) if job.state.final else None


def _kernel_facts(kernel: str, test: Mapping[str, Any]) -> list[tuple[str, str]]:
    facts = [("kernel", kernel), ("shape", words.shape(test.get("shape", ())))]
    facts.append(
        (
            "tolerance",
            commands.tolerance_words(test["tolerance"])
            if test.get("tolerance")
            else "none declared",
        )
    )
    facts.append(("inputs", commands.plain(test.get("inputs")) or "uniform −1 … 1"))
    facts.append(
        ("numerics", commands.plain(test.get("numerics")) or "bf16, fp32 accumulation, HiFi4")
    )
    return facts + [
        (name, commands.plain(test[name]))
        for name in ("parameters", "epsilon", "memory", "program")
        if name in test
    ]


def _facts(job: JobRow) -> tuple[tuple[str, str], ...]:
    """Return the request in words; defaults are left out, as in the test's canonical form."""
    test = job.test
    chosen = reports.is_selection(job)
    facts = list(reports.facts(job)) if chosen else _kernel_facts(job.kernel, test)
    compared = [] if job.reference is None else [("compared with", f"{job.reference} and float64")]
    elsewhere = imported.facts(job)
    facts += [
        ("build", job.build),
        *compared,
        *(elsewhere or [("runs on", job.queue.replace(".", " · "))]),
    ]
    facts.append(("iterations" if chosen else "seeds", commands.seeds_words(job)))
    if (saved := sequential_text.saved(job)) is not None:
        facts.append(("saved", saved))
    if job.context != "isolated":
        facts.append(("context", commands.plain(job.context)))
    if job.labels:
        facts.append(
            ("labels", ", ".join(f"{name}={value}" for name, value in sorted(job.labels.items())))
        )
    if job.commit:
        facts.append(("commit", _commit_text(job.commit)))
    facts.append(("submitted", f"{job.created_at:%Y-%m-%d %H:%M:%S} UTC by {job.owner}"))
    if job.started_at and job.finished_at and job.finished_at > job.started_at:
        facts.append(
            ("duration", words.duration((job.finished_at - job.started_at).total_seconds()))
        )
    return tuple(facts)


def _commit_text(commit: JobCommit) -> str:
    pull = f", pull request {commit.pull_request}" if commit.pull_request else ""
    return f"{commit.sha} of {commit.repository}{pull}"

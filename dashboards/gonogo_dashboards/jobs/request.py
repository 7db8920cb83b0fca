"""The request of a job in words, and what became of its seeds."""

from __future__ import annotations

from gonogo.reports.check_line import check_line
from gonogo.spec.selections import Selection
from gonogo_dashboards.kit import commands, words
from gonogo_service.jobs.model import JobRow


def facts(job: JobRow) -> tuple[tuple[str, str], ...]:
    """Return the request; defaults are left out, as in the test's canonical form."""
    rows = _selection(job) if job.is_selection else commands.facts_of(job.test)
    rows.append(("build", job.build))
    if job.reference is not None:
        rows.append(("compared with", f"{job.reference} and float64"))
    if file := job.import_:
        tests = words.count(file.tests, "test")
        rows.append(("imported", f"{tests} from {commands.IMPORTED[file.format]}"))
        by = " ".join(filter(None, (file.tool, file.started_at)))
        rows.append(("ran", f"elsewhere, {by}" if by else "elsewhere"))
    else:
        rows.append(("runs on", job.queue.replace(".", " · ")))
    rows.append(("iterations" if job.is_selection else "seeds", commands.seeds_words(job)))
    if job.stop is not None:
        spared = job.stop.device_ms_saved
        time = "" if spared is None else f", {words.duration(spared / 1000)} of device time"
        most = words.count(job.stop.max, "seed")
        rows.append(("saved", f"{job.stop.seeds_saved:,} of {most}{time}"))
    if job.context != "isolated":
        rows.append(("context", commands.plain(job.context)))
    if job.labels:
        labels = (f"{name}={value}" for name, value in sorted(job.labels.items()))
        rows.append(("labels", ", ".join(labels)))
    if job.commit is not None:
        number = job.commit.pull_request
        pull = f", pull request {number}" if number else ""
        rows.append(("commit", f"{job.commit.sha} of {job.commit.repository}{pull}"))
    rows.append(("submitted", f"{words.moment(job.created_at)} by {job.owner}"))
    if job.started_at and job.finished_at and job.finished_at > job.started_at:
        took = (job.finished_at - job.started_at).total_seconds()
        rows.append(("duration", words.duration(took)))
    return tuple(rows)


def _selection(job: JobRow) -> list[tuple[str, str]]:
    selection = Selection.parse(job.test)
    order = f"shuffled by {selection.shuffle}"
    if selection.shuffle is None or selection.shuffle is True:
        order = "shuffled by each seed" if selection.shuffle else ""
    named = (
        ("suite", selection.suite),
        ("filter", selection.filter),
        ("stages", ", ".join(selection.stages or ())),
        ("order", order),
    )
    return [(name, value) for name, value in named if value] or [
        ("tests", "all tests of the build")
    ]


def notes(job: JobRow) -> tuple[str, ...]:
    """Return sentences for the progress: the decision or what it needs, and suspect seeds."""
    sentences: list[str] = []
    if job.stop is not None:
        sentences.append(f"Decided, {job.stop.decision}: {job.stop.words}.")
    elif job.sequential is not None and not job.state.final:
        plan = job.sequential
        needed = f"; at least {words.count(plan.needed, 'more seed')}" if plan.needed else ""
        read = f"{words.count(plan.seen, 'seed')} read in order"
        sentences.append(f"Not decided yet: {read}, {plan.failures:,} failed{needed}.")
    if job.suspects is not None:
        sentences.append(f"{job.suspects.words[:1].upper()}{job.suspects.words[1:]}.")
    return tuple(sentences)


def at_most(job: JobRow) -> bool:
    """Return whether the job's total is only a maximum."""
    return job.sequential is not None and (job.stop is None or job.stop.seeds_run is None)


def check(job: JobRow, seed: int, output: str) -> str | None:
    """Return the command that runs a seed on the reader's own machine; None for an import."""
    if job.import_ is not None:
        return None
    return check_line(
        job.test,
        build=job.build,
        executor=job.executor,
        seed=seed,
        output=output,
        reference=job.reference,
        context=job.context,
    )

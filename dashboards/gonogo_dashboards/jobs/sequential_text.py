"""Sequential and suspect seeds in words: the state of the decision, and what it saved."""

from __future__ import annotations

from gonogo_dashboards.kit import words
from gonogo_service.jobs.model import JobRow


def notes(job: JobRow) -> tuple[str, ...]:
    """Return sentences for the job's progress: the decision or what it needs, and suspect seeds."""
    sentences: list[str] = []
    if job.stop is not None:
        sentences.append(f"Decided, {job.stop.decision}: {job.stop.words}.")
    elif job.sequential is not None and not job.state.final:
        plan = job.sequential
        needed = f"; at least {words.count(plan.needed, 'more seed')}" if plan.needed else ""
        read = f"{words.count(plan.seen, 'seed')} read in order"
        sentences.append(f"Not decided yet: {read}, {plan.failures:,} failed{needed}.")
    if job.suspects is not None:
        text = job.suspects.words
        sentences.append(f"{text[:1].upper()}{text[1:]}.")
    return tuple(sentences)


def at_most(job: JobRow) -> bool:
    """Return whether the job's total is only a maximum."""
    return job.sequential is not None and (job.stop is None or job.stop.seeds_run is None)


def saved(job: JobRow) -> str | None:
    """Return what the decision saved: "451 of 500 seeds, 1.1 s of device time".

    None: nothing was decided.
    """
    if job.stop is None:
        return None
    spared = job.stop.device_ms_saved
    time = "" if spared is None else f", {words.duration(spared / 1000)} of device time"
    return f"{job.stop.seeds_saved:,} of {words.count(job.stop.max, 'seed')}{time}"

"""Sequential and suspect seeds in words: where the decision stands, what it was, what it saved."""

from __future__ import annotations

from gonogo_dashboards.kit import words
from gonogo_storage.jobs.job import Job


def notes(job: Job) -> tuple[str, ...]:
    """Sentences for the job's progress: the decision or what it still needs, and what became of
    suspect seeds.
    """
    found: list[str] = []
    if job.stop is not None:
        found.append(f"Decided, {job.stop['decision']}: {job.stop['words']}.")
    elif job.sequential is not None and not job.state.final:
        plan = job.sequential
        needed = f"; at least {words.count(plan['needed'], 'more seed')}" if plan["needed"] else ""
        found.append(
            f"Not decided yet: {words.count(plan['seen'], 'seed')} read in order, {plan['failures']:,} failed{needed}."
        )
    if job.suspects is not None:
        said = str(job.suspects["words"])
        found.append(f"{said[:1].upper()}{said[1:]}.")
    return tuple(found)


def at_most(job: Job) -> bool:
    """Whether the job's total is only what it may run at most."""
    return job.sequential is not None and (job.stop is None or job.stop["seeds_run"] is None)


def saved(job: Job) -> str | None:
    """What the decision saved: "451 of 500 seeds, 1.1 s of device time"; None where nothing was
    decided.
    """
    if job.stop is None:
        return None
    spared = job.stop["device_ms_saved"]
    time = "" if spared is None else f", {words.duration(spared / 1000)} of device time"
    return f"{job.stop['seeds_saved']:,} of {words.count(job.stop['max'], 'seed')}{time}"

"""Deliver a run to its server or its folder exactly once, now or later."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from gonogo import urls
from gonogo.pytest_plugin import spool
from gonogo.pytest_plugin.records import encoded
from gonogo.pytest_plugin.spool import SpooledRun, Undelivered


def is_server(to: str) -> bool:
    """Return whether a destination is a server's address; otherwise it is a folder."""
    return to.startswith(("http://", "https://"))


def deliver(run: SpooledRun) -> list[str]:
    """Deliver a run, and return where its numbers are, in words.

    The same run delivered again is stored once. Raises Undelivered.
    """
    header, records = encoded(run.header), (encoded(record.to_json()) for record in run.records)
    if is_server(run.to):
        # Imported here: most runs of pytest need neither HTTP nor TLS
        from gonogo.pytest_plugin import server

        answers = server.send(run.to, run.id, header, records)
        return [
            f"{run.to.rstrip('/')}{urls.job(answer['id'])} ({answer.get('verdict')})"
            for answer in answers
        ]
    path = Path(run.to, f"{run.id}.jsonl")
    unfinished = path.with_suffix(".unfinished")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_bytes(b"\n".join([header, *records, b""]))
        unfinished.replace(path)
    except (OSError, ValueError) as problem:
        raise Undelivered(f"{run.to}: {getattr(problem, 'strerror', problem)}") from None
    return [str(path)]


def catch_up(
    folder: Path, *, only: str | None = None, but: str | None = None, to: str | None = None
) -> Iterator[tuple[bool, str]]:
    """Deliver the leftovers of earlier runs in a folder; yield (whether it worked, words) of each.

    only: just those for this destination, and none that was refused before. but: except this run,
    which is still going on. to: deliver all of them there instead. After the first failure no other
    run for the same destination is tried.
    """
    unreachable: set[str] = set()
    for left in spool.left_over(folder, but=but, refused=only is None):
        try:
            run = left.read()
        except ValueError as problem:
            yield False, f"{left.path.name} can't be read: {problem}"
            continue
        name = f"the run of {run.header.get('started_at')}"
        if to is not None:
            run = replace(run, to=to)
        if run.to in unreachable or only not in (None, run.to):
            continue
        try:
            words = deliver(run) if run.records else ["no test of it had begun"]
        except Undelivered as problem:
            if problem.refused:
                left.refused()
            else:
                unreachable.add(run.to)
            yield False, f"{name} is still in {left.path.name}: {problem}"
            continue
        left.delete()
        died = "" if run.finished_at else ", which was killed"
        for place in words:
            yield True, f"{name}{died}: {place}"

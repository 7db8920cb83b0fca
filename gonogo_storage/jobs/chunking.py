"""Cut a job's work into chunks of about 20 s.

Sequential seeds begin with small chunks, so that stopping saves something.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise

from sqlalchemy.orm import Session

from gonogo.flakiness import sequential
from gonogo_storage.db.ids import new_id
from gonogo_storage.db.states import ChunkState
from gonogo_storage.tables import ChunkRow

Work = list[list[int]]  # [[seed, repeat], ...]

MAX_WORK = 2000  # a message stays below some 64 KiB, and a lost attempt costs no more than this
# For sequential seeds: a logic bug shows in one seed, and the chunk that shows it runs to its end
# for its diagnosis.
FIRST_SEEDS = 2
USUAL_SEEDS = 8  # a decision needs at least 49 seeds: about six starts of a child process
# Later chunks are a quarter of the seeds before them, so that stopping wastes at most a fifth.
LATER_SHARE = 4


def pairs(seeds: Sequence[int], repeats: int) -> Work:
    """Return the work for these seeds, seed by seed, the repeats of a seed together."""
    return [[seed, repeat] for seed in seeds for repeat in range(repeats)]


def cut(
    seeds: Sequence[int], repeats: int, seed_s: float, chunk_s: float, *, most: int = MAX_WORK
) -> list[Work]:
    """Cut the work of a job into parts of nearly equal size, at most `most` pairs each.

    The order is seed by seed, the repeats of a seed together.
    """
    work = pairs(seeds, repeats)
    size = min(MAX_WORK, most, max(1, int(chunk_s / seed_s)))
    count = math.ceil(len(work) / size)
    edges = [len(work) * k // count for k in range(count + 1)]
    return [work[low:high] for low, high in pairwise(edges)]


def grow(seeds: Sequence[int], repeats: int, seed_s: float, chunk_s: float) -> list[Work]:
    """Cut sequential seeds into growing parts, never larger than those of `cut`.

    Parts have 2, 2, 4, 8, 8, ... seeds, then a quarter of the seeds before them. They hold whole
    seeds, and one ends where the earliest decision without a failure falls.
    """
    max_seeds = max(1, min(MAX_WORK, int(chunk_s / seed_s)) // repeats)
    rest = iter(seeds)
    return [pairs(list(islice(rest, size)), repeats) for size in _sizes(len(seeds), max_seeds)]


def _sizes(count: int, max_seeds: int) -> Iterator[int]:
    earliest = sequential.decide(0, 0, count).needed
    planned = 0
    while planned < count:
        size = min(
            max_seeds,
            max(FIRST_SEEDS, min(planned, max(USUAL_SEEDS, planned // LATER_SHARE))),
            count - planned,
        )
        if planned < earliest < planned + size:
            size = earliest - planned
        yield size
        planned += size


def add(
    session: Session,
    job_id: str,
    queue: str,
    parts: Sequence[Work],
    seed_s: float,
    *,
    first: int = 0,
) -> None:
    """Store chunks of a job; their numbers begin at `first`."""
    session.add_all(
        ChunkRow(
            id=new_id(),
            job_id=job_id,
            number=n,
            state=ChunkState.waiting,
            queue=queue,
            work=part,
            estimate_s=seed_s * len(part),
        )
        for n, part in enumerate(parts, first)
    )

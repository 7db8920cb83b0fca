"""How a job's work is cut into chunks: parts of about 20 s; of sequential seeds small ones first,
so that stopping saves something.
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
# of sequential seeds: a logic bug shows in one, and the chunk that shows it runs to its end for its
# diagnosis
FIRST_SEEDS = 2
USUAL_SEEDS = 8  # a decision is 49 seeds away at the least: about six starts of a child process
# beyond that a chunk is a quarter of what came before, so that stopping in it wastes a fifth at
# most
LATER_SHARE = 4


def pairs(seeds: Sequence[int], repeats: int) -> Work:
    """Seed by seed, and the repeats of a seed together."""
    return [[seed, repeat] for seed in seeds for repeat in range(repeats)]


def cut(
    seeds: Sequence[int], repeats: int, seed_s: float, chunk_s: float, *, most: int = MAX_WORK
) -> list[Work]:
    """The work of a job, seed by seed and the repeats of a seed together, in parts of nearly equal
    size, at most `most` each.
    """
    work = pairs(seeds, repeats)
    size = min(MAX_WORK, most, max(1, int(chunk_s / seed_s)))
    count = math.ceil(len(work) / size)
    edges = [len(work) * k // count for k in range(count + 1)]
    return [work[low:high] for low, high in pairwise(edges)]


def grow(seeds: Sequence[int], repeats: int, seed_s: float, chunk_s: float) -> list[Work]:
    """The same for sequential seeds: 2, 2, 4, 8, 8, ... seeds, then a quarter of those before;
    never more than `cut` would take.

    Parts hold whole seeds, and one ends where the earliest decision without a failure falls.
    """
    most = max(1, min(MAX_WORK, int(chunk_s / seed_s)) // repeats)
    rest = iter(seeds)
    return [pairs(list(islice(rest, size)), repeats) for size in _sizes(len(seeds), most)]


def _sizes(count: int, most: int) -> Iterator[int]:
    earliest = sequential.decide(0, 0, count).needed
    before = 0
    while before < count:
        size = min(
            most,
            max(FIRST_SEEDS, min(before, max(USUAL_SEEDS, before // LATER_SHARE))),
            count - before,
        )
        if before < earliest < before + size:
            size = earliest - before
        yield size
        before += size


def add(
    session: Session,
    job_id: str,
    queue: str,
    parts: Sequence[Work],
    seed_s: float,
    *,
    first: int = 0,
) -> None:
    """Store chunks of a job, the next numbers from `first`."""
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

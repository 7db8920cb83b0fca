"""Cut a job's work into chunks of about 20 s, one after the other and only when one is sent.

Sequential seeds begin with small chunks, so that stopping saves something.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from gonogo.flakiness import sequential

MAX_WORK = 2000  # a message stays below some 64 KiB, and a lost attempt costs no more than this
# For sequential seeds: a logic bug shows in one seed, and the chunk that shows it runs to its end
# for its artifacts.
FIRST_SEEDS = 2
USUAL_SEEDS = 8  # a decision needs at least 49 seeds: about six starts of a child process
# Later chunks are a quarter of the seeds before them, so that stopping wastes at most a fifth.
LATER_SHARE = 4


@dataclass(frozen=True)
class Work:
    """The pairs (seed, member) of a job in order: seed by seed, the members of a seed together.

    The members are the repeats of a seed, or the parts of a gauge.
    """

    seeds: Sequence[int]
    members: Sequence[int]

    def __len__(self) -> int:
        return len(self.seeds) * len(self.members)

    def part(self, low: int, high: int) -> list[list[int]]:
        """Return the pairs from place `low` up to `high` as they are stored: [[seed, member], ...].

        Only the seeds of this part are read.
        """
        members = self.members
        return [
            [self.seeds[place // len(members)], members[place % len(members)]]
            for place in range(low, high)
        ]


@dataclass(frozen=True)
class Cut:
    """How work is cut: in nearly equal chunks, or in growing ones of sequential seeds."""

    pairs: int
    members: int
    chunks: int
    growth: int | None = None
    """The most seeds of a growing chunk; None: nearly equal chunks."""

    def end(self, number: int, start: int) -> int:
        """Return the place after the last pair of chunk `number`, which begins at `start`."""
        if self.growth is None:
            return self.pairs * (number + 1) // self.chunks
        seeds = _growing(self.pairs // self.members, start // self.members, self.growth)
        return start + seeds * self.members

    def ends(self) -> Iterator[int]:
        """Yield the ends of all chunks."""
        end = 0
        for number in range(self.chunks):
            end = self.end(number, end)
            yield end


def equal(work: Work, pair_s: float, chunk_s: float, *, most: int = MAX_WORK) -> Cut:
    """Return the cut into chunks of nearly equal size, at most `most` pairs each."""
    size = min(MAX_WORK, most, max(1, int(chunk_s / pair_s)))
    return Cut(len(work), len(work.members), math.ceil(len(work) / size))


def growing(work: Work, pair_s: float, chunk_s: float) -> Cut:
    """Return the cut of sequential seeds into growing chunks, never larger than those of `equal`.

    Chunks have 2, 2, 4, 8, 8, ... seeds, then a quarter of the seeds before them. They hold whole
    seeds, and one ends where the earliest decision without a failure falls.
    """
    count = len(work.seeds)
    growth = max(1, min(MAX_WORK, int(chunk_s / pair_s)) // len(work.members))
    chunks = planned = 0
    while planned < count:
        planned += _growing(count, planned, growth)
        chunks += 1
    return Cut(len(work), len(work.members), chunks, growth)


def _growing(count: int, planned: int, max_seeds: int) -> int:
    """Return the seeds of the chunk after `planned` of `count` seeds."""
    earliest = _earliest(count)
    size = min(
        max_seeds,
        max(FIRST_SEEDS, min(planned, max(USUAL_SEEDS, planned // LATER_SHARE))),
        count - planned,
    )
    if planned < earliest < planned + size:
        size = earliest - planned
    return size


@lru_cache(maxsize=64)
def _earliest(count: int) -> int:
    return sequential.decide(0, 0, count).needed

"""The order of a job's (seed, repeat) on pages.

Seeds ascend, the repeats of a seed are together, and added seeds come last.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gonogo_service.jobs import work


@dataclass(frozen=True)
class SeedOrder:
    """The places 0, 1, 2, ... of a job's (seed, repeat)."""

    seeds: Sequence[int]
    """The requested seeds, ascending."""
    repeats: int
    added: Sequence[int] = ()
    """Seeds that were added because of suspect ones, in the order of adding."""

    @classmethod
    def of(
        cls,
        requested: Mapping[str, Any] | Sequence[int],
        repeats: int,
        added: Sequence[int],
    ) -> SeedOrder:
        """Return the order for a job's requested seeds and those that suspect ones added.

        The requested seeds are a range, a maximum number, or a list.
        """
        seeds = work.expand(requested)
        return cls(
            seeds if isinstance(seeds, range) else sorted(seeds),
            repeats,
            tuple(added),
        )

    def __len__(self) -> int:
        return (len(self.seeds) + len(self.added)) * self.repeats

    def place(self, seed: int, repeat: int) -> int | None:
        """Return the place of a (seed, repeat); None if the job doesn't have it."""
        if not 0 <= repeat < self.repeats:
            return None
        if isinstance(self.seeds, range):  # consecutive seeds
            index = min(max(seed - self.seeds.start, 0), len(self.seeds))
        else:
            index = bisect_left(self.seeds, seed)
        if index == len(self.seeds) or self.seeds[index] != seed:
            if seed not in self.added:
                return None
            index = len(self.seeds) + self.added.index(seed)
        return index * self.repeats + repeat

    def at(self, place: int) -> tuple[int, int]:
        """Return the (seed, repeat) at a place below `len`. Raises IndexError."""
        index, repeat = divmod(place, self.repeats)
        return (
            self.seeds[index] if index < len(self.seeds) else self.added[index - len(self.seeds)]
        ), repeat

"""The (seed, repeat) of a job in the order in which pages show them: seeds ascending, the repeats
of a seed together, added ones last.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class SeedOrder:
    """Places 0, 1, 2, ... of a job's (seed, repeat)."""

    seeds: Sequence[int]
    """What was asked for, ascending."""
    repeats: int
    added: Sequence[int] = ()
    """Seeds that suspect ones have added, in the order of adding."""

    @classmethod
    def of(cls, request: Mapping[str, Any], suspects: Mapping[str, Any] | None) -> SeedOrder:
        """Of a job's request (its `seeds` a range, at most so many, or a list) and its suspect
        seeds.
        """
        asked = request.get("seeds") or {"start": 0, "count": 1}
        seeds: Sequence[int]
        if isinstance(asked, Mapping):
            start = int(asked.get("start", 0))
            seeds = range(start, start + int(asked.get("count", asked.get("max", 1))))
        else:
            seeds = sorted(int(seed) for seed in asked)
        return cls(
            seeds,
            max(1, int(request.get("repeats", 1))),
            tuple(int(seed) for seed in (suspects or {}).get("added", ())),
        )

    def __len__(self) -> int:
        return (len(self.seeds) + len(self.added)) * self.repeats

    def place(self, seed: int, repeat: int) -> int | None:
        """Where a (seed, repeat) stands; None where the job doesn't have it."""
        if not 0 <= repeat < self.repeats:
            return None
        index = bisect_left(self.seeds, seed)
        if index == len(self.seeds) or self.seeds[index] != seed:
            if seed not in self.added:
                return None
            index = len(self.seeds) + self.added.index(seed)
        return index * self.repeats + repeat

    def at(self, place: int) -> tuple[int, int]:
        """The (seed, repeat) of a place below `len`. Raises IndexError."""
        index, repeat = divmod(place, self.repeats)
        return (
            self.seeds[index] if index < len(self.seeds) else self.added[index - len(self.seeds)]
        ), repeat

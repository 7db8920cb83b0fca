"""Missed rows over seeds: how many rows of a right kernel its own program doesn't reproduce.

Rows decide where a statistic is stored in 16 bits: a fault of .1 % in rstd moves a tenth to a fifth
of the rows by a whole step, and leaves the others as they were. In a right kernel a row moves only
where its statistic lies so near a tie that the fp32 sums decide it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gonogo.spec.program_name import same
from gonogo.spec.verdicts import Explanation

NAME = "missed_rows"
"""The statistic: {"arithmetic": program, "missed": rows, "rows": rows in all} of one output."""
RATE = 1e-4
"""The rate at which rows of right kernels are missed: the largest that was seen of kernels of
libraries."""
CHANCE = 2e-3
"""The chance that a right test is called unexplained for its missed rows: a fifth of the share of
right tests, 1 %, that may end suspect or unexplained."""
MIN_UNEXPLAINED = 2
"""One missed row is never more than suspect."""


@dataclass(frozen=True)
class MissedRows:
    """The rows of an output that the nearest storing program misses, over any number of seeds."""

    arithmetic: str
    """The program's name"""
    missed: int
    """The rows that it does not reproduce"""
    rows: int
    """All rows of these seeds"""
    seeds: int = 1

    @property
    def explanation(self) -> Explanation:
        """Return what the number of missed rows says, whatever their distance is."""
        if not self.missed:
            return Explanation.explained
        is_chance = self.missed < least_unexplained(self.rows)
        return Explanation.suspect if is_chance else Explanation.unexplained

    @property
    def words(self) -> str:
        """The count as a phrase; "" where no row is missed."""
        if not self.missed:
            return ""
        where = f" in {self.seeds:,} seeds" if self.seeds > 1 else ""
        return (
            f"all but {self.missed:,} of {self.rows:,} rows{where} are those of {self.arithmetic}"
        )


def least_unexplained(rows: int) -> int:
    """Return the least number of missed rows, of `rows`, that is no chance.

    The number in a right kernel is a Poisson variable of mean RATE rows. The least k with P(k or
    more) <= CHANCE, and at least MIN_UNEXPLAINED: 2 up to 646 rows (8 seeds of 80), 3 up to 2,432,
    5 of 6,552 (8 seeds of 819), 6 of 10,000, 14 of 50,000.
    """
    mean = RATE * max(rows, 1)
    beyond, count = 1.0, 0
    while count < MIN_UNEXPLAINED or beyond > CHANCE:
        beyond -= math.exp(count * math.log(mean) - mean - math.lgamma(count + 1))
        count += 1
    return count


def pooled(rows: Iterable[Mapping[str, Any]]) -> MissedRows | None:
    """Return the missed rows of an output's seeds together; None where no seed counts any.

    rows: the statistics of the output, a row per seed. Seeds of one program are counted, the one of
    most rows.
    """
    programs: list[MissedRows] = []
    for row in rows:
        counted = row.get(NAME)
        if not counted:
            continue
        name, missed, of = counted["arithmetic"], int(counted["missed"]), int(counted["rows"])
        seeds = int(counted.get("seeds", 1))
        for place, known in enumerate(programs):
            if same(known.arithmetic, name):
                programs[place] = MissedRows(
                    known.arithmetic, known.missed + missed, known.rows + of, known.seeds + seeds
                )
                break
        else:
            programs.append(MissedRows(name, missed, of, seeds))
    return max(programs, key=lambda program: program.rows, default=None)


def is_unexplained(rows: Iterable[Mapping[str, Any]]) -> bool:
    """Return whether an output's seeds, together, miss too many rows: suspect ones are wrong then.

    Fewer missed rows never acquit: a row that is wrong in another way may be one of them.
    """
    together = pooled(rows)
    return together is not None and together.explanation is Explanation.unexplained

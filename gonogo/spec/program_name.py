"""The names of programs, such as "bf16: mean, rstd stored, running sums", and their parts.

A program is the arithmetic of a kernel as data (gonogo.numerics.replay.program).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gonogo.numerics.replay.program import in_order

NOTHING_STORED = "fp32-inside"
COLUMN_SUMS = "column sums: "
ROW_SUMS = "row sums: "
_STORED = re.compile(r"(?P<formats>[a-z0-9/-]+): (?P<names>.+?) stored(?:, (?P<traits>.+))?")
_SCALED: Mapping[str, str] = {"sum of x": "mean", "sum of squares": "variance"}
"""Quantity -> 1/N times it. For N = 2^k both are rounded alike."""
_HIDDEN: Mapping[str, frozenset[str]] = {
    "rstd": frozenset({"square", "variance", "variance + epsilon", "root"}),
    "root": frozenset({"square", "variance", "variance + epsilon"}),
}
"""Stored quantity -> what only reaches the output through it.

Its rounding hides most of theirs, so that programs with and without them often fit the same output.
"""


@dataclass(frozen=True)
class ProgramName:
    """The parts of a program's name.

    Attributes:
        stored: the format of each stored quantity; several, such as "bf16/fp16", where the name
            doesn't say which, and "16-bit" for either.
        traits: the order of its sums and the form of its variance, as the name has them.
    """

    stored: Mapping[str, str]
    traits: tuple[str, ...]

    @classmethod
    def parse(cls, name: str) -> ProgramName | None:
        """Return the parts of a name; None for one that isn't a program's.

        Names of other versions are read, too: no quantity or trait is refused.
        """
        # orders of sums come last, and have commas
        rest, along, by_rows = name.partition(f", {ROW_SUMS}")
        rows, mark, columns = rest.partition(f", {COLUMN_SUMS}")
        by_columns: tuple[str, ...] = (COLUMN_SUMS + columns,) if mark else ()
        by_columns += (ROW_SUMS + by_rows,) if along else ()
        if rows == NOTHING_STORED or rows.startswith(f"{NOTHING_STORED}, "):
            return cls({}, (*rows.split(", ")[1:], *by_columns))
        match = _STORED.fullmatch(rows)
        if match is None:
            return None
        stored = dict.fromkeys(match["names"].split(", "), match["formats"])
        return cls(stored, (*(match["traits"].split(", ") if match["traits"] else ()), *by_columns))

    @property
    def name(self) -> str:
        """Return the name with its quantities in the order in which kernels compute them."""
        quantities = ", ".join(in_order(self.stored))
        formats = "/".join(sorted(set(self.stored.values())))
        head = f"{formats}: {quantities} stored" if self.stored else NOTHING_STORED
        return ", ".join((head, *self.traits))

    @property
    def visible(self) -> ProgramName:
        """Return the name with what an output can tell apart only, in a fixed order."""
        stored = {_SCALED.get(name, name): form for name, form in self.stored.items()}
        hidden = {name for storing in stored for name in _HIDDEN.get(storing, ())}
        return ProgramName(
            {name: stored[name] for name in sorted(stored) if name not in hidden},
            tuple(sorted(self.traits)),
        )


def same(first: str, second: str) -> bool:
    """Return whether two names are of arithmetic models that one output can't tell apart.

    A search lists the quantities that others hide only now and then, and a sum for a mean. So the
    same kernel gets several names over its seeds.
    """
    if first == second:
        return True
    visible = visible_part(first)
    return visible is not None and visible == visible_part(second)


def visible_part(name: str) -> ProgramName | None:
    """Return what an output can tell of a program's name; None for another model's name."""
    program = ProgramName.parse(name)
    return None if program is None else program.visible

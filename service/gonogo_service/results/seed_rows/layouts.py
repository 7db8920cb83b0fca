"""The outputs of a seed as one compact value: a layout, its numbers and the rest.

A layout says which output has which statistics, in which order and form. It is stored once
(`seed_layouts`), under a hash of its content, because most seeds share it. A seed then has only

- `numbers`: verdicts and explanations as codes, digests, and the floats in the layout's order.
  Those in EXACT are float64. The others, of which nothing reads more, are float32 and read as
  seven digits. An output with a number beyond float32's range has only float64.
- `rest`: the other values, as a JSON list in the layout's order.

Statistics that rarely differ between seeds are in the layout itself. Seeds with the results of
existing tests, of which there may be thousands, have no layout: `rest` is a JSON object.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from gonogo.spec.statistics import STATISTICS
from gonogo_service.kit.database.columns import EXPLANATIONS
from gonogo_service.kit.database.encoding import encode, separate

EXACT = frozenset(row.name for row in STATISTICS.values() if row.exact)
"""These stay float64, as do the numbers within dictionaries, such as `needed_atol`."""
KINDS = "nonfinite_kinds"
MAX_OUTPUTS = 16
"""Seeds with more outputs have no layout."""
CONSTANT = frozenset(row.name for row in STATISTICS.values() if row.shared)
"""Statistics that are in the layout, besides the counts."""
HEAD, TAIL = ("verdict", "explanation"), ("outcome", "digest", KINDS)
OUTPUT_EXPLANATIONS = (None, *EXPLANATIONS)
SMALLEST, LARGEST = 2.0**-126, 3.4e38
DIGITS = 16
_SINGLE_NUMBER = struct.Struct("<f")
DOUBLE, SINGLE, NESTED, DIGEST, OTHER, FIXED = "d", "f", "n", "x", "j", "c"
MAX_LAYOUTS = 4096

Output = Mapping[str, Any]
Entry = tuple[str, str, Any]
"""A statistic's name, its form, and what belongs to it: names within it, or its value."""


@dataclass(frozen=True)
class Layout:
    """The outputs of a seed, each with its entries, as (name, entries)."""

    id: int
    outputs: Sequence[tuple[str, Sequence[Entry]]]
    numbers: struct.Struct

    @staticmethod
    def of(outputs: Sequence[Any]) -> Layout:
        """Return the layout with this content, as it is stored."""
        forms = [form for _, entries in outputs for form in map(itemgetter(1), entries)]
        nested = sum(len(d) for _, entries in outputs for _, form, d in entries if form == NESTED)
        format_ = (
            f"<{2 * len(outputs)}B{forms.count(DIGEST)}Q{forms.count(DOUBLE) + nested}d"
            f"{forms.count(SINGLE)}f"
        )
        content = hashlib.sha256(encode(outputs).encode()).digest()
        return Layout(
            int.from_bytes(content[:8], "big") >> 1,
            [(name, [(*entry,) for entry in entries]) for name, entries in outputs],
            struct.Struct(format_),
        )


def seven_digits(value: float) -> float:
    """Return the decimal number with seven digits that a float32 stands for."""
    return float("%.7g" % value)  # noqa: UP031 (an f-string takes twice as long)


def stored_number(name: str, value: float) -> float:
    """Return a finite statistic as it is read after storing."""
    if name in EXACT or not SMALLEST <= abs(value) <= LARGEST:
        return value
    return seven_digits(_SINGLE_NUMBER.unpack(_SINGLE_NUMBER.pack(value))[0])


def finite(output: Output) -> Output:
    """Return an output with None for numbers that aren't finite, and their kinds."""
    values, kinds = separate(dict(output))
    return {**values, KINDS: {**(output.get(KINDS) or {}), **kinds} or None} if kinds else output

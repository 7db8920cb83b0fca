"""The arithmetic models of the kernels in a gauge, and what no seed of them could have shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeVar

from gonogo.gauge.windows import Row
from gonogo.spec import arithmetic_words
from gonogo.spec.arithmetic_words import OutputArithmetic

Outputs = TypeVar("Outputs")
SHOWN_NAMES = 3
"""The kernels with equal models that are named; of more, their number."""


def by_part(rows: Sequence[Row]) -> Mapping[str, tuple[OutputArithmetic, ...]]:
    """Return the models of each part's outputs, pooled over its seeds.

    rows: those with numbers (gonogo.gauge.measure). A budget has detection limits where it explains
    the output.
    """
    return {
        part: _of_part([row for row in rows if row["part"] == part])
        for part in dict.fromkeys(row["part"] for row in rows)
    }


def _of_part(rows: Sequence[Row]) -> tuple[OutputArithmetic, ...]:
    replayed = arithmetic_words.of_results(rows)
    names_replayed = {output.output for output in replayed}
    named: dict[str, Counter[str | None]] = {}
    for row in rows:
        for output, statistics in row["outputs"].items():
            if output not in names_replayed and statistics.get("arithmetic"):
                named.setdefault(output, Counter())[statistics["arithmetic"]] += 1
    models = {output.output: output for output in replayed} | {
        output: OutputArithmetic(output, next(iter(names)), dict(names), None, names.total(), ())
        for output, names in named.items()
    }
    order = dict.fromkeys(output for row in rows for output in row["outputs"])
    return tuple(models[output] for output in order if output in models)


def alike(parts: Mapping[str, Outputs]) -> list[tuple[str, Outputs]]:
    """Return the kernels with equal models together: (their names in words, the models)."""
    groups: list[tuple[list[str], Outputs]] = []
    for part, outputs in parts.items():
        group = next((names for names, other in groups if other == outputs), None)
        if group is None:
            groups.append(([part], outputs))
        else:
            group.append(part)
    return [(_in_words(names, len(parts)), outputs) for names, outputs in groups]


def _in_words(names: Sequence[str], count: int) -> str:
    if len(names) == count > 1:
        return "all kernels"
    more = len(names) - SHOWN_NAMES
    return ", ".join(names[:SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")

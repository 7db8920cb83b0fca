"""Arithmetics and detection limits for reading: a line for each output."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gonogo.spec.arithmetic_names import NAMES
from gonogo.spec.arithmetic_words import OutputArithmetic, grouped
from gonogo.spec.verdicts import Explanation
from gonogo_dashboards.kit import words

EXPLAINED_BY, CLOSEST = "explained by", "closest"


@dataclass(frozen=True)
class ArithmeticLine:
    """The arithmetic of one output, and the faults that its verdict can't have seen."""

    output: str
    relation: str
    """EXPLAINED_BY, or CLOSEST where no arithmetic explains the output"""
    arithmetic: str
    hover: str
    """The meaning of the name, if a build may declare it"""
    seeds: str
    """In how many seeds it explains the output; "" where there is nothing to count"""
    others: str
    """The arithmetics of the other seeds"""
    detection_limits: tuple[str, ...]
    is_wide: bool
    """Only an unknown order of operations explains it: the limits are part of the verdict"""


def of_job(outputs: Iterable[OutputArithmetic], noun: str) -> tuple[ArithmeticLine, ...]:
    """Return a line per output of a job; `noun` is that of its seeds."""
    lines = []
    for output in outputs:
        first, *others = output.counts
        name = output.arithmetic or output.closest or ""
        lines.append(
            ArithmeticLine(
                output.output,
                EXPLAINED_BY if output.arithmetic else CLOSEST,
                name,
                NAMES.get(name, ""),
                f"{first.seeds:,} of {words.count(output.seeds, noun)}",
                ", ".join(f"{other.arithmetic or 'none'}: {other.seeds:,}" for other in others),
                grouped(output.detection_limits),
                output.is_wide,
            )
        )
    return tuple(lines)


def of_seed(output: str, entry: Mapping[str, Any]) -> ArithmeticLine | None:
    """Return the line of one output of one seed; None where no arithmetic is known."""
    name = entry.get("arithmetic")
    if not name:
        return None
    explained = entry.get("explanation") == Explanation.explained
    relation = EXPLAINED_BY if explained else CLOSEST
    limits = grouped([str(limit) for limit in entry.get("detection_limits") or ()])
    hover = NAMES.get(name, "")
    return ArithmeticLine(output, relation, name, hover, "", "", limits, bool(entry.get("is_wide")))

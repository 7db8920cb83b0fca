"""Arithmetic models and detection limits for reading: a line for each output."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gonogo.spec import arithmetic_words
from gonogo.spec.arithmetic_words import OutputArithmetic
from gonogo_dashboards.kit import words


@dataclass(frozen=True)
class ArithmeticLine:
    """The arithmetic model of one output, and the faults that its verdict can't have seen.

    Attributes:
        output: the output's name.
        arithmetic: the model's name; None: none reproduces the output.
        label: the name, or what there is instead of it.
        hover: what the name means.
        seeds: in how many seeds it is the model, in words; "" where there is nothing to count.
        others: the models of the other seeds, in words.
        detection_limits: the limits; empty where there are none, or no model.
    """

    output: str
    arithmetic: str | None
    label: str
    hover: str
    seeds: str
    others: str
    detection_limits: tuple[str, ...]


def of_job(outputs: Iterable[OutputArithmetic], noun: str) -> tuple[ArithmeticLine, ...]:
    """Return a line per output of a job; `noun` is that of its seeds."""
    lines = []
    for output in outputs:
        (_, seeds), *others = output.programs.items()
        lines.append(
            ArithmeticLine(
                output.output,
                output.arithmetic,
                _label(output.arithmetic, output.nearest, output.reproduced_by),
                arithmetic_words.meaning(output.arithmetic or output.reproduced_by),
                f"{seeds:,} of {words.count(output.seeds, noun)}",
                ", ".join(f"{name or 'none'}: {number:,}" for name, number in others),
                output.detection_limits,
            )
        )
    return tuple(lines)


def of_seed(output: str, statistics: Mapping[str, Any], named: str | None) -> ArithmeticLine | None:
    """Return the line of one output of one seed; None where it has nothing to show.

    named: the model that rules the seed.
    """
    known = arithmetic_words.with_model(statistics, named)
    if known is None:
        return None
    name = known.get("arithmetic")
    limits: Sequence[str] = known.get("detection_limits") or ()
    other = known.get("reproduced_by")
    label = _label(name, known.get("nearest_arithmetic"), other)
    hover = arithmetic_words.meaning(name or other)
    return ArithmeticLine(output, name, label, hover, "", "", tuple(map(str, limits)))


def _label(name: str | None, nearest: str | None, other: str | None) -> str:
    if name is not None:
        return name
    if other is not None:
        return arithmetic_words.unnamed(other)
    return "none reproduces it" + (f"; nearest: {nearest}" if nearest else "")

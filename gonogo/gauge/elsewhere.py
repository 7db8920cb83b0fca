"""Other inputs to try if no tolerance works.

They make a wrong term large against the rounding of a right one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gonogo.gauge.advice import spelled
from gonogo.gauge.summary import MeasuredTest, TriedSummary

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec


@dataclass(frozen=True)
class OtherInputs:
    """Inputs with a short name, and a sentence that says what they make large."""

    name: str
    sentence: str
    inputs: dict[str, Any]


def candidates(test: TestSpec) -> list[OtherInputs]:
    """Return inputs that make wrong terms large, the likeliest first, without the test's own.

    With a mean as large as its spread, the gradient that LayerNorm's backward pass is given makes
    s1 as large as dx, instead of 1/sqrt(N) of it. A sum over the one hot tile is nothing without
    that tile, and twice as much with the first tile's values as padding.
    """
    offset = {"regime": "offset", "offset": 1.0, "std": 1.0}
    first = {"regime": "hot_tile", "tile": 0, "value": 64}
    middle = first | {"tile": -(-test.features // 32) // 2}
    small = {"regime": "normal", "mean": 0, "std": 1e-3}
    x = test.drawn_names[0]
    gamma: dict[str, Any] = {}
    table: tuple[tuple[str, str, dict[str, Any]], ...] = (
        (f"offset {x}", f"{x} has a mean: a wrong sum moves every element.", {x: offset}),
        (f"hot tile of {x}", "The sums of a row come from the middle tile alone.", {x: middle}),
        (f"small {x}", "Squares near epsilon: a wrong epsilon scales the outputs.", {x: small}),
    )
    if test.kernel == "layernorm_bw":
        gamma = {"gamma": {"regime": "uniform", "low": 0.5, "high": 1.5}}
        table = (
            ("offset dy", "dy has a mean: s1 becomes as large as dx.", {"dy": offset}),
            ("offset x and dy", "x and dy have a mean.", {"x": offset, "dy": offset}),
            ("hot first tile of dy", "s1 comes from the first tile alone.", {"dy": first}),
            ("hot middle tile of dy", "s1 comes from the middle tile alone.", {"dy": middle}),
        )
    others = [OtherInputs(name, sentence, inputs | gamma) for name, sentence, inputs in table]
    return [other for other in others if test.replace(inputs=other.inputs).inputs != test.inputs]


def compared(here: MeasuredTest, where: OtherInputs, there: MeasuredTest) -> TriedSummary:
    """Return the gauge of the test with other inputs, compared with that with its own."""
    return TriedSummary(
        name=where.name,
        sentence=where.sentence,
        inputs=where.inputs,
        advice=there.advice,
        gains=[part for part in there.advice.rejected if part not in here.advice.rejected],
        loses=[part for part in here.advice.rejected if part not in there.advice.rejected],
    )


def beyond(tried: Sequence[TriedSummary]) -> str:
    """Return a text on the mutants that other inputs detect; "" if none was tried."""
    if not tried:
        return ""
    useful = cover(tried)
    if not useful:
        return f" None of {len(tried)} other inputs that were tried shows more."
    return " " + " ".join(_sentence(inputs) for inputs in useful)


def cover(tried: Sequence[TriedSummary]) -> list[TriedSummary]:
    """Return the inputs to add to the test's own, those that reject most missed mutants first.

    Each is there for what it adds to the others.
    """
    left = {part for inputs in tried for part in inputs.gains}
    chosen: list[TriedSummary] = []
    while left:
        best = max(tried, key=lambda inputs: len(left & set(inputs.gains)))
        chosen.append(best)
        left -= set(best.gains)
    return chosen


def _sentence(tried: TriedSummary) -> str:
    advice = tried.advice
    rejected = len(advice.rejected)
    does = "does" if advice.works else f"rejects {rejected} of {rejected + len(advice.missed)}"
    sentence = f'With inputs "{tried.name}" {spelled(advice.tolerance)} {does}'
    if tried.gains:
        sentence += f", among them {', '.join(tried.gains)}"
    return sentence + (f"; lost there: {', '.join(tried.loses)}." if tried.loses else ".")

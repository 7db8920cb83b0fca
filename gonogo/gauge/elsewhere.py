"""Other inputs that are tried where no tolerance works: they make a wrong term large against the
rounding of a right one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gonogo.gauge.advice import spelt
from gonogo.gauge.report import Gauge
from gonogo.kernels import registry

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec


@dataclass(frozen=True)
class Elsewhere:
    """Inputs under a short name, and what they make large."""

    name: str
    sentence: str
    inputs: dict[str, Any]


def candidates(test: TestSpec) -> list[Elsewhere]:
    """Inputs for the test's kernel, the likeliest first; those that the test has already are left
    out.
    """
    found = [Elsewhere(*each) for each in registry.numerics(test).candidates(test)]
    return [each for each in found if replace(test, inputs=each.inputs).inputs != test.inputs]


@dataclass(frozen=True)
class Tried:
    """What the gauge says of the test with other inputs, against what it says with its own."""

    where: Elsewhere
    gauge: Gauge
    gains: tuple[str, ...]
    """Wrong parts that the tolerance advised there rejects and the one advised here doesn't."""
    loses: tuple[str, ...]
    """Wrong parts that the one here rejects, and that pass there or can't show."""

    @classmethod
    def of(cls, here: Gauge, where: Elsewhere, there: Gauge) -> Tried:
        """Compares the two gauges."""
        ours, theirs = _rejected(here), _rejected(there)
        return cls(
            where,
            there,
            tuple(p for p in theirs if p not in ours),
            tuple(p for p in ours if p not in theirs),
        )

    def to_json(self) -> dict[str, Any]:
        """{"name", "inputs", "advice", "gains", "loses"}."""
        return {
            "name": self.where.name,
            "sentence": self.where.sentence,
            "inputs": self.where.inputs,
            "advice": {**self.gauge.advice.to_json(), "words": self.gauge.advice.words},
            "gains": list(self.gains),
            "loses": list(self.loses),
        }

    @property
    def words(self) -> str:
        """In one sentence."""
        advice = self.gauge.advice
        does = (
            "does"
            if advice.works
            else f"rejects {len(advice.parts) - len(advice.missed)} of {len(advice.parts)}"
        )
        said = f'With inputs "{self.where.name}" {spelt(advice.tolerance)} {does}'
        if self.gains:
            said += f", among them {', '.join(self.gains)}"
        return said + (f"; lost there: {', '.join(self.loses)}." if self.loses else ".")


def _rejected(gauge: Gauge) -> list[str]:
    return (
        [part for part in gauge.advice.parts if part not in gauge.advice.missed]
        if gauge.advice.tolerance
        else []
    )


def beyond(tried: Sequence[Tried]) -> str:
    """What other inputs would see, in words that follow others; nothing when none was tried."""
    if not tried:
        return ""
    useful = cover(tried)
    if not useful:
        return f" None of {len(tried)} other inputs that were tried shows more."
    return " " + " ".join(each.words for each in useful)


def cover(tried: Sequence[Tried]) -> list[Tried]:
    """Return the inputs to add to the test's own, the one that rejects most of what is missed first, each
    for what it adds to the others.
    """
    left = {part for each in tried for part in each.gains}
    found: list[Tried] = []
    while left:
        each = max(tried, key=lambda one: len(left & set(one.gains)))
        found.append(each)
        left -= set(each.gains)
    return found

"""Other inputs to try if no tolerance works.

They make a wrong term large against the rounding of a right one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gonogo.gauge.advice import spelled
from gonogo.gauge.report import Gauge
from gonogo.gauge.summary import TriedSummary
from gonogo.kernels import registry

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec


@dataclass(frozen=True)
class OtherInputs:
    """Inputs with a short name, and a sentence that says what they make large."""

    name: str
    sentence: str
    inputs: dict[str, Any]


def candidates(test: TestSpec) -> list[OtherInputs]:
    """Return inputs for the test's kernel, the likeliest first, without the test's own."""
    others = [OtherInputs(*candidate) for candidate in registry.numerics(test).candidates(test)]
    return [other for other in others if test.replace(inputs=other.inputs).inputs != test.inputs]


@dataclass(frozen=True)
class TriedInputs:
    """The gauge of the test with other inputs, compared with its gauge with its own."""

    where: OtherInputs
    gauge: Gauge
    gains: tuple[str, ...]
    """Mutants that the tolerance advised there rejects and the one advised here doesn't."""
    loses: tuple[str, ...]
    """Mutants that the tolerance advised here rejects, and that pass there or can't show."""

    @classmethod
    def of(cls, here: Gauge, where: OtherInputs, there: Gauge) -> TriedInputs:
        """Compare the two gauges."""
        rejected_here, rejected_there = _rejected(here), _rejected(there)
        return cls(
            where,
            there,
            tuple(p for p in rejected_there if p not in rejected_here),
            tuple(p for p in rejected_here if p not in rejected_there),
        )

    @property
    def summary(self) -> TriedSummary:
        """Return it in plain values."""
        return TriedSummary(
            name=self.where.name,
            sentence=self.where.sentence,
            inputs=self.where.inputs,
            advice=self.gauge.advice.summary,
            gains=list(self.gains),
            loses=list(self.loses),
        )

    @property
    def words(self) -> str:
        """The comparison in one sentence."""
        advice = self.gauge.advice
        does = (
            "does"
            if advice.works
            else f"rejects {len(advice.parts) - len(advice.missed)} of {len(advice.parts)}"
        )
        sentence = f'With inputs "{self.where.name}" {spelled(advice.tolerance)} {does}'
        if self.gains:
            sentence += f", among them {', '.join(self.gains)}"
        return sentence + (f"; lost there: {', '.join(self.loses)}." if self.loses else ".")


def _rejected(gauge: Gauge) -> list[str]:
    return (
        [part for part in gauge.advice.parts if part not in gauge.advice.missed]
        if gauge.advice.tolerance
        else []
    )


def beyond(tried: Sequence[TriedInputs]) -> str:
    """Return what other inputs would see, as text to append; "" if none was tried."""
    if not tried:
        return ""
    useful = cover(tried)
    if not useful:
        return f" None of {len(tried)} other inputs that were tried shows more."
    return " " + " ".join(inputs.words for inputs in useful)


def cover(tried: Sequence[TriedInputs]) -> list[TriedInputs]:
    """Return the inputs to add to the test's own, those that reject most missed mutants first.

    Each is there for what it adds to the others.
    """
    left = {part for inputs in tried for part in inputs.gains}
    chosen: list[TriedInputs] = []
    while left:
        best = max(tried, key=lambda inputs: len(left & set(inputs.gains)))
        chosen.append(best)
        left -= set(best.gains)
    return chosen

"""The comparison of two builds: what a job's `reference` means for the verdict of a seed.

There are still two questions. *Within*: the declared comparators hold against the reference build's
output (instead of the float64 one). *Explained*: rounding explains the error of this build, against
float64. So it may for the reference build, or not: that is told, and changes no verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.closeness import storable
from gonogo.judging.judging import OutputJudgement, SeedJudgement, judge, matrix
from gonogo.judgment.pairs import flips_of
from gonogo.judgment.statistics import statistics_of
from gonogo.judgment.tolerance import allclose_of
from gonogo.spec.compared_outputs import AgainstReference, FlipCounts
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import Explanation, seed_verdict, verdict, within

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Reference:
    """The build that another one is compared with."""

    build: str
    arithmetic: str | None = None
    """The one that it declares; None: it is found."""
    produced: tuple[str, ...] | None = None
    """Its outputs; None for all."""


MEANINGLESS = ("tolerance_ratio_quantized", "outliers")
"""The statistics that a comparison of two builds doesn't have."""
WRONG = (Explanation.unexplained, Explanation.suspect)


def compare(
    test: TestSpec,
    judged: SeedJudgement,
    raw: Arrays,
    given: Arrays,
    outputs: Arrays,
    reference_outputs: Arrays,
    reference: Reference,
) -> SeedJudgement:
    """Return the judgment of a seed with the comparison of two builds.

    judged: the judgment of this build against float64. reference_outputs: what the reference build
    made of the same inputs.

    Each common output gets "reference": AgainstReference and the statistics of the difference. An
    output that the reference build doesn't produce is judged against float64 alone. Raises
    KernelOutputError where an output of the reference build is missing or has a wrong shape.
    """
    other = judge(
        test,
        raw,
        given,
        reference_outputs,
        arithmetic=reference.arithmetic,
        produced=reference.produced,
        with_limits=False,
    )
    results: dict[str, OutputJudgement] = {}
    answers: list[tuple[bool, Explanation]] = []
    for name, output in judged.outputs.items():
        tolerance = test.tolerance_for(name)
        is_within = within(tolerance, output.statistics)
        if name in other.outputs:
            numbers, counts = _difference(test, name, outputs, reference_outputs)
            is_within = within(tolerance, numbers)
            against = AgainstReference(
                reference.build,
                other.outputs[name].explanation,
                other.outputs[name].statistics.get("arithmetic"),
                is_within if name in test.outputs else None,
                counts,
            )
            output = replace(
                output,
                verdict=verdict(is_within, output.explanation),
                statistics={**output.statistics, "reference": asdict(against) | numbers},
            )
        if name in test.outputs:
            answers.append((is_within, output.explanation))
        results[name] = output
    return replace(judged, verdict=seed_verdict(answers), outputs=results)


def _difference(
    test: TestSpec, name: str, outputs: Arrays, reference_outputs: Arrays
) -> tuple[dict[str, Any], FlipCounts]:
    """Return the statistics of an output's difference from the reference build's, and its flips."""
    output, other = (
        matrix(test, name, side).astype(np.float64).reshape(test.flat_shape_of(name))
        for side in (outputs, reference_outputs)
    )
    counts = flips_of(output, other)
    is_same = (output == other) | (np.isnan(output) & np.isnan(other))
    is_finite = np.isfinite(other)
    values = np.where(is_finite, output, np.where(is_same, 0.0, np.nan))
    right = np.where(is_finite, other, 0.0)
    numbers = statistics_of(
        values,
        right,
        right,
        test.numerics.output,
        np.zeros(values.shape, np.bool_),
        allclose_of(test.tolerance_for(name)),
    )
    entry = {name: value for name, value in asdict(numbers).items() if name not in MEANINGLESS}
    return storable(entry | {"mismatch_fraction": float(1 - is_same.mean())}), counts


def words(judged: SeedJudgement) -> str | None:
    """Return one line where rounding doesn't explain one of the two builds; None if it does.

    It names the outputs, and which of the two builds is off.
    """
    lines = []
    for name, output in judged.outputs.items():
        entry = output.statistics.get("reference")
        if not entry:
            continue
        other, largest = entry["build"], entry["max_abs"]
        match output.explanation in WRONG, entry["explanation"] in WRONG:
            case True, True:
                answer = f"neither this build nor {other}"
            case True, False:
                answer = f"{other}, not this build"
            case False, True:
                answer = f"this build, not {other}"
            case _:
                continue
        size = "" if largest is None else f" (they differ by up to {largest:.3g})"
        lines.append(f"{name}: rounding explains {answer}{size}")
    return "; ".join(lines) or None

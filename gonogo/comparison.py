"""Judge the arrays that a test already has, and say in words what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo import fields as reading
from gonogo.builds import PROFILES
from gonogo.inputs import quantise
from gonogo.judging import SeedJudgement, judge
from gonogo.numerics.forensics import diagnose
from gonogo.problems import FieldError, JobError
from gonogo.tests import TestSpec
from gonogo.verdicts import Explanation, Verdict

HARMLESS = frozenset({Verdict.suspect, Verdict.no_information})
"""Verdicts that say neither right nor wrong: one run warns of them and fails nothing."""
SHOWN = ("budget_ratio", "chi", "row_z", "max_abs", "tolerance_ratio")


def judge_here(
    test_fields: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], profile: str | None = None
) -> tuple[SeedJudgement, str | None, bool]:
    """The judgement, words unless it is a pass, and whether it is bad enough to fail a test.

    arrays: inputs and outputs in the test's shapes. The inputs are those that the kernel was given. Raises FieldError for a test, a
    tensor or a profile that can't be, and for inputs that the test's input format can't represent; JobError where one is missing.
    """
    test = TestSpec.parse(test_fields)
    if profile is not None:
        reading.choice(profile, PROFILES, "profile")
    given = _representable(test, {name: _shaped(test, name, arrays) for name in test.input_names})
    outputs = {name: _shaped(test, name, arrays) for name in test.outputs if name in arrays}
    for name in arrays:
        reading.choice(name, (*test.input_names, *test.outputs), "tensor")
    if not outputs:
        raise JobError(f"there is no output to judge: give some of {', '.join(test.outputs)}")
    judgement = judge(test, given, given, outputs, profile=profile, produced=tuple(outputs))
    if judgement.verdict is Verdict.pass_:
        return judgement, None, False
    return judgement, _words(test, judgement, given, outputs), judgement.verdict not in HARMLESS


def _shaped(test: TestSpec, name: str, arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
    """The tensor with its rows flattened, as the domain has it; dimensions of 1 may be anywhere ([1, 1, 1, N] of a gamma)."""
    if name not in arrays:
        raise JobError(f"{name} is missing: {test.kernel} is given {', '.join(test.input_names)}")
    array = arrays[name]
    wanted, flat = test.shape_of(name), test.flat_shape_of(name)
    if _squeezed(array.shape) not in (_squeezed(wanted), _squeezed(flat)):
        raise FieldError(name, list(array.shape), "has a wrong shape", limit=list(wanted))
    return np.ascontiguousarray(array, dtype=np.float32).reshape(flat)


def _squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(length for length in shape if length != 1)


def _representable(test: TestSpec, inputs: dict[str, NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
    given = quantise(test, inputs)
    for name, values in given.items():
        differing = (values != inputs[name]) & ~np.isnan(inputs[name])
        if differing.any():
            place = tuple(int(index) for index in np.argwhere(differing)[0])
            form = test.numerics.format_of(name)
            raise FieldError(
                f"{name}{list(place)}", float(inputs[name][place]), f"isn't a {form} value: no kernel was given it; see numerics.input"
            )
    return given


def _words(
    test: TestSpec, judgement: SeedJudgement, given: Mapping[str, NDArray[Any]], outputs: Mapping[str, NDArray[Any]]
) -> str:
    """The message: verdict, its sentence, the numbers of every output that isn't a pass, and the diagnosis."""
    lines = [f"{test.kernel} {list(test.shape)}: {judgement.verdict.value} (budget of {judgement.profile}). {judgement.verdict.sentence}"]
    for name, output in judgement.outputs.items():
        if output.verdict is not Verdict.pass_:
            numbers = [f"{key} {value:.3g}" for key in SHOWN if isinstance(value := output.statistics.get(key), float)]
            lines.append(f"  {name}: {output.verdict.value}, {output.explanation.value}; {', '.join(numbers)}")
    if judgement.explanation is Explanation.unexplained:
        diagnosed = diagnose(test, given, outputs).words
        if diagnosed:
            lines.append(f"  {diagnosed}")
    return "\n".join(lines)

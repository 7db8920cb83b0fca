"""Public bugs: each passed its suite, and each is flagged; most are named."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo import emulator
from gonogo.emulator.public_bugs import PUBLIC_BUGS, PublicBug
from gonogo.judging.inputs import generate, quantise
from gonogo.judging.judging import judge
from gonogo.kernels.kernel import PUBLIC_BUGS as BY_KERNEL
from gonogo.spec.arithmetic_names import TT_TRAIN
from gonogo.spec.builds import emulator_build
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import Explanation, Verdict
from gonogo.workloads import check_build

UNNAMED = ("attorch-17", "tt-metal-28803", "tt-metal-49600", "tt-metal-50682", "tt-metal-52685")
"""The bugs of which a diagnosis says the places alone."""
Arrays = dict[str, NDArray[np.float32]]


def case(bug: PublicBug, **changes: Any) -> tuple[TestSpec, dict[str, NDArray[Any]], Arrays]:
    """Return a bug's test, and the inputs of its first seed, raw and as they are given."""
    fields = {"kernel": bug.kernel, "tolerance": bug.gate, **bug.test, **changes}
    test = TestSpec.parse(fields)
    raw = generate(test, 0)
    return test, raw, quantise(test, raw)


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLIC_BUGS)
def test_a_public_bug_is_green_and_flagged_and_its_value_is_named(name: str) -> None:
    bug = PUBLIC_BUGS[name]
    test, raw, given = case(bug)
    outputs = emulator.run(test, given, name)
    judgment = judge(test, raw, given, outputs, arithmetic=TT_TRAIN, with_limits=False)
    assert judgment.explanation is Explanation.unexplained
    assert judgment.verdict is Verdict.pass_by_tolerance
    answers = [one.answer for one in judgment.outputs.values() if one.answer is not None]
    wrong = [one.message for one in answers if one.explanation is Explanation.unexplained]
    words = set(re.findall(r"\w+", " ".join(wrong)))
    if name in UNNAMED:
        assert "values are off" in wrong[0]
        assert not words & set(bug.values)
    else:
        assert words & set(bug.values or ["row"])


@pytest.mark.parametrize("name", [bug.name for bug in PUBLIC_BUGS.values() if bug.passed])
def test_a_public_bug_is_right_to_the_bit_in_the_test_of_its_suite(name: str) -> None:
    test, _, given = case(PUBLIC_BUGS[name], **PUBLIC_BUGS[name].passed)
    outputs, right = (emulator.run(test, given, build) for build in (name, "correct"))
    assert all(np.array_equal(outputs[output], right[output]) for output in right)


def test_public_bugs_are_builds_of_their_kernels_and_rows_of_the_evidence() -> None:
    assert len(PUBLIC_BUGS) >= 15
    evidence = (Path(__file__).parents[4] / "docs/evidence.md").read_text("utf-8")
    for kernel, names in BY_KERNEL.items():
        known = sorted(bug.name for bug in PUBLIC_BUGS.values() if bug.kernel == kernel)
        assert known == list(names)
    for name, bug in PUBLIC_BUGS.items():
        assert bug.source in emulator.builds_of(bug.kernel)[name].sentence
        check_build(emulator_build(name), case(bug)[0])
        assert f"| [{name}]({bug.source}) | `{bug.kernel}` |" in evidence

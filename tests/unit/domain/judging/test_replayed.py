"""A card that computes as its program says, and one that doesn't: then nobody is accused."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gonogo.judging.judging import judge
from gonogo.judging.replayed import closest, replayed, together, undecided
from gonogo.spec.verdicts import Explanation, Verdict
from gonogo.workloads import programs_on_wormhole
from numeric_cases import Case, spec

KERNELS = ("layernorm_fw", "layernorm_bw", "rmsnorm_fw")


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS)
def test_the_emulator_is_replayed_by_its_own_program_and_by_no_other(kernel: str) -> None:
    case = Case.of(spec(kernel, (33, 150), regime="offset"))
    outputs = case.emulated()
    replays = [
        replayed(case.test, case.given, outputs, name) for name in programs_on_wormhole(case.test)
    ]
    best = closest(replays)
    assert best is not None
    assert (best.arithmetic, best.distance, best.equal) == ("tt-train", 0.0, best.elements)
    assert best.is_right
    assert best.words.startswith("tt-train replays 100 % of")
    assert not any(other.is_right for other in replays if other is not best)


def test_several_shapes_count_together() -> None:
    cases = [Case.of(spec(shape=shape)) for shape in ((32, 128), (8, 96))]
    parts = [replayed(one.test, one.given, one.emulated(), "tt-train") for one in cases]
    every = together(parts)
    assert every.elements == every.equal == sum(part.elements for part in parts)
    case = cases[1]
    outputs = case.emulated()
    outputs["dx"][0, 0] = np.nan
    wrong = replayed(case.test, case.given, outputs, "tt-train")
    assert together([every, wrong]).distance == math.inf


def test_on_a_card_that_its_program_does_not_replay_nobody_is_accused_but_of_nan() -> None:
    case = Case.of(spec(shape=(24, 96), tolerance={"rtol": 1e-3, "atol": 0.5}))
    outputs = case.emulated("tt-train-2025")
    outputs["dgamma"][3] = np.nan
    judged = judge(case.test, case.raw, case.given, outputs, arithmetic="tt-train")
    assert judged.outputs["dx"].explanation is Explanation.unexplained
    without = undecided(case.test, judged, "the card isn't known")
    assert without.outputs["dx"].verdict is Verdict.inconclusive
    assert without.outputs["dx"].statistics["reason"] == "the card isn't known"
    assert "fault" not in without.outputs["dx"].statistics
    assert without.outputs["dgamma"] == judged.outputs["dgamma"]
    assert without.outputs["dbeta"] == judged.outputs["dbeta"]
    assert without.verdict is Verdict.fail
    calm = undecided(
        case.test,
        judge(
            case.test, case.raw, case.given, case.emulated("tt-train-2025"), arithmetic="tt-train"
        ),
        "the card isn't known",
    )
    assert calm.verdict is Verdict.inconclusive

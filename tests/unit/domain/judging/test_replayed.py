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


@pytest.mark.parametrize("kernel", ["layernorm_fw", "layernorm_bw", "rmsnorm_fw"])
def test_the_emulator_is_replayed_by_its_own_program_and_by_no_other(kernel: str) -> None:
    case = Case.of(spec(kernel, (17, 150), regime="offset"))
    names = programs_on_wormhole(case.test)
    replays = [replayed(case.test, case.given, case.emulated(), name) for name in names]
    best = closest(replays)
    assert best is not None
    assert (best.arithmetic, best.distance, best.equal) == ("tt-train", 0.0, best.elements)
    assert [one.arithmetic for one in replays if one.is_right] == ["tt-train"]
    size = sum(math.prod(case.test.shape_of(name)) for name in case.test.outputs)
    words = (
        f"tt-train replays 100 % of {size:,} values of known-right kernels to the bit;"
        " the largest distance is 0 of 8 deviations"
    )
    assert best.to_json() == {
        "arithmetic": "tt-train",
        "elements": size,
        "equal": size,
        "distance": 0.0,
        "is_right": True,
        "words": words,
    }


def test_several_shapes_count_together_and_nan_is_no_replay() -> None:
    cases = [Case.of(spec(shape=shape)) for shape in ((32, 128), (8, 96))]
    parts = [replayed(one.test, one.given, one.emulated(), "tt-train") for one in cases]
    every = together(parts)
    assert every.elements == every.equal == sum(part.elements for part in parts)
    case = cases[1]
    outputs = case.emulated()
    outputs["dx"][0, 0] = np.nan
    wrong = replayed(case.test, case.given, outputs, "tt-train")
    assert wrong.equal == wrong.elements - 1
    assert together([every, wrong]).distance == math.inf
    assert wrong.to_json()["distance"] is None
    assert closest([wrong, every]) is every
    assert closest([]) is None


def test_on_a_card_that_its_program_does_not_replay_nobody_is_accused_but_of_nan() -> None:
    case = Case.of(spec(shape=(16, 96), tolerance={"rtol": 1e-3, "atol": 0.5}))
    outputs = case.emulated("tt-train-2025")
    arrays = case.test, case.raw, case.given, outputs
    calm = judge(*arrays, arithmetic="tt-train", with_limits=False)
    assert undecided(case.test, calm, "").verdict is Verdict.inconclusive
    outputs["dgamma"][3] = np.nan
    judged = judge(*arrays, arithmetic="tt-train", with_limits=False)
    assert judged.outputs["dx"].explanation is Explanation.unexplained
    without = undecided(case.test, judged, "the card isn't known")
    assert without.outputs["dx"].verdict is Verdict.inconclusive
    assert without.outputs["dx"].statistics["reason"] == "the card isn't known"
    assert not {"fault", "fault_share", "faults"} & without.outputs["dx"].statistics.keys()
    for name in ("dgamma", "dbeta"):
        assert without.outputs[name] == judged.outputs[name]
    assert (without.verdict, without.explanation) == (Verdict.fail, Explanation.unexplained)

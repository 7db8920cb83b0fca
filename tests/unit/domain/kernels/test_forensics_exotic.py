"""The forensics of coarse arithmetic.

They don't call the effect of a low fidelity or of few bits a wrong term. They still name defects.
"""

from __future__ import annotations

from typing import Any

import pytest

from gonogo.judging.inputs import generate, quantise
from gonogo.kernels.layernorm import emulation
from gonogo.kernels.layernorm.forensics import Diagnosis, diagnose
from gonogo.numerics.diagnosis import PRECISION
from gonogo.spec.diagnoses import AT_THE_EDGE, NOT_FOUND, PARTLY, RIGHT, consistent_diagnosis
from gonogo.spec.test_spec import TestSpec

CALM = {
    "gamma": {"regime": "uniform", "low": 0.5, "high": 1.5},
    "beta": {"regime": "uniform", "low": -0.1, "high": 0.1},
}
FINE = {"output": "fp32", "input": "fp32", "buffers": "fp32"}


def emulated(
    kernel: str,
    shape: list[int],
    numerics: dict[str, str],
    build: str = "correct",
    inputs: Any = None,
) -> Diagnosis:
    test = TestSpec.parse(
        {"kernel": kernel, "shape": shape, "numerics": numerics, "inputs": inputs or {}}
    )
    given = quantise(test, generate(test, 3))
    return diagnose(test, given, emulation.run(test, given, build))


@pytest.mark.parametrize(
    ("kernel", "shape", "numerics", "inputs"),
    [
        ("layernorm_fw", [160, 1024], {"fidelity": "lofi"}, CALM),
        ("layernorm_fw", [160, 1024], {"fidelity": "hifi2"}, CALM),
        (
            "layernorm_fw",
            [64, 2048],
            {"fidelity": "hifi2", "input": "bfp8_b", "output": "bfp8_b"},
            CALM,
        ),
        ("layernorm_fw", [64, 2048], {"fidelity": "lofi", **FINE}, None),
        ("layernorm_fw", [160, 1024], {"buffers": "bfp8_b"}, None),
        ("layernorm_bw", [33, 100], {"fidelity": "lofi", "statistics": "own"}, CALM),
        ("layernorm_bw", [40, 4000], {"fidelity": "hifi2", "accumulate": "bf16"}, None),
        ("layernorm_bw", [160, 1024], {"buffers": "bfp8_b"}, None),
    ],
)
def test_no_term_of_a_right_kernel_is_called_wrong(
    kernel: str, shape: list[int], numerics: dict[str, str], inputs: Any
) -> None:
    if kernel == "layernorm_bw" and inputs:
        inputs = {"gamma": inputs["gamma"]}
    diagnosis = emulated(kernel, shape, numerics, inputs=inputs)
    assert [term.words for term in diagnosis.terms if term.wrong] == []
    assert diagnosis.words == RIGHT or diagnosis.words.startswith(f"{PARTLY}; cannot tell ")
    assert diagnosis.can_tell is (diagnosis.words == RIGHT)


COARSE = [
    {"fidelity": "lofi"},
    {"fidelity": "hifi2"},
    {"input": "bfp8_b", "fidelity": "lofi"},
]


@pytest.mark.parametrize("numerics", COARSE)
@pytest.mark.parametrize(
    ("kernel", "build", "words"),
    [
        ("layernorm_bw", "drop-s1", "s1 is missing in all 32 tiles"),
        ("layernorm_bw", "double-subtract", "s1 is subtracted twice in all 32 tiles"),
        ("layernorm_bw", "gamma-shifted-tile", "gamma is that of the tile before in all 32 tiles"),
        ("layernorm_fw", "mean-not-subtracted", "mean is missing in all 32 tiles"),
        ("layernorm_fw", "gamma-shifted-tile", "gamma is that of the tile before in all 32 tiles"),
    ],
)
def test_defects_are_told_in_coarse_arithmetic_too(
    kernel: str, build: str, words: str, numerics: dict[str, str]
) -> None:
    inputs = CALM if kernel == "layernorm_fw" else None
    assert words in emulated(kernel, [160, 1000], numerics, build, inputs).words


def test_what_the_replay_and_exact_inputs_show_leads_a_diagnosis() -> None:
    """A Wormhole's budget is too wide for an fp32 kernel: its terms alone can't tell."""
    term = {"output": "y", "name": "gamma", "tiles": 2, "wrong": True}
    blind = {"terms": [{**term, "wrong": False}], "words": RIGHT, "can_tell": True}
    other = {"terms": [term], "words": "gamma is halved", "can_tell": True}
    outputs = {"y": {"fault": "the variance divides by N - 1: explains 99.9 % of the error"}}
    shown = consistent_diagnosis(blind, "unexplained", outputs)
    assert shown["words"] == f"y: {outputs['y']['fault']}"
    assert shown["can_tell"] is True
    assert consistent_diagnosis(other, "unexplained", outputs)["words"] == shown["words"]
    same = {"y": {"fault": "gamma is off by a factor of .5: explains 99.9 % of the error"}}
    assert consistent_diagnosis(other, "unexplained", same)["words"] == (
        f"y: {same['y']['fault']}; gamma is halved"
    )
    reading = {"mismatches": 3, "words": "3 of 64 differ: s1 leaves out tile 1"}
    exact = {"y": {"exact": reading}, "mean": {"exact": {"mismatches": 0, "words": ""}}}
    assert consistent_diagnosis(blind, "unexplained", exact)["faults"] == {"y": reading["words"]}
    assert consistent_diagnosis(blind, "explained", {"y": {}}) == blind


@pytest.mark.parametrize(
    ("statistics", "is_precision"),
    [
        ({}, True),  # a budget judged it
        ({"arithmetic": None, "nearest_arithmetic": "fp32-inside"}, False),
        ({"nearest_arithmetic": "fp32-inside", "reproduced_by": "bf16: x^ stored"}, True),
        ({"arithmetic": "bf16: x^ stored", "nearest_arithmetic": "bf16: x^ stored"}, True),
    ],
)
def test_precision_is_named_only_where_a_program_reproduces_the_output(
    statistics: dict[str, str | None], is_precision: bool
) -> None:
    scatters = "gamma scatters 50 times more than rounding, in no pattern of row tiles"
    words = scatters + PRECISION
    term = {"output": "dgamma", "name": "gamma", "tiles": 1, "wrong": True, "words": words}
    diagnosis = {"terms": [term], "words": f"{words}; cannot tell s1", "can_tell": True}
    shown = consistent_diagnosis(diagnosis, "unexplained", {"dgamma": statistics})
    words = words if is_precision else scatters
    assert shown["words"] == f"{words}; cannot tell s1"
    assert shown["terms"] == [{**term, "words": words}]


def test_beside_an_unexplained_error_nothing_is_called_right() -> None:
    right = {"terms": [{"wrong": False}], "words": RIGHT, "can_tell": True}
    partly = {
        "terms": [{"wrong": False}],
        "words": f"{PARTLY}; cannot tell which tiles: x is constant",
        "can_tell": False,
    }
    wrong = {"terms": [{"wrong": True}], "words": "s1 is missing", "can_tell": True}
    assert consistent_diagnosis(right, "unexplained") == {
        **right,
        "words": NOT_FOUND,
        "can_tell": False,
    }
    assert consistent_diagnosis(partly, "unexplained") == {
        **partly,
        "words": f"{NOT_FOUND}; cannot tell which tiles: x is constant",
    }
    assert consistent_diagnosis(right, "suspect") == {**right, "words": AT_THE_EDGE}
    assert consistent_diagnosis(wrong, "unexplained") == wrong
    assert consistent_diagnosis(right, "explained") == right
    assert (
        consistent_diagnosis({"words": "cannot tell: there is no x", "can_tell": False}, None)[
            "words"
        ]
        == "cannot tell: there is no x"
    )

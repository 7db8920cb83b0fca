"""Programs that explain a small output beside the one that is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gonogo
from gonogo.numerics.formats import round_to

OTHERS = "also_explained_by"
RUNNING = "fp32-inside, running sums"


def case(form: str, shape: tuple[int, int], *, stored: bool = False, seed: int = 0) -> Any:
    """The arguments of judge() for an RMSNorm with blocked sums; stored: with a 16-bit x^."""
    generator = np.random.default_rng(seed)
    x = round_to(generator.normal(size=shape), form)
    gamma = round_to(1 + 0.3 * generator.normal(size=shape[1]), form)
    rstd = 1 / np.sqrt(np.square(x).mean(axis=1, keepdims=True) + np.float32(1e-6))
    normalized = round_to(x * rstd, form) if stored else x * rstd
    return {
        "kernel": "rmsnorm_fw",
        "inputs": {"x": x, "gamma": gamma},
        "outputs": {"y": round_to(normalized * gamma, form)},
        "tolerance": {"rtol": 1e-5, "atol": 0.0},
        "epsilon": 1e-6,
        "numerics": {"input": form, "output": form},
    }


@pytest.mark.parametrize("form", ["fp32", "bf16"])
def test_a_small_output_names_the_other_programs_that_explain_it(form: str) -> None:
    judgment = gonogo.judge(**case(form, (4, 64)))
    others = judgment.outputs["y"][OTHERS]
    assert judgment.arithmetic == "fp32-inside"
    assert RUNNING in others
    assert len(set(others)) == len(others)
    assert not any("stored" in name for name in [judgment.arithmetic, *others])


def test_without_beta_a_stored_product_is_the_output_so_that_two_programs_fit() -> None:
    judgment = gonogo.judge(**case("bf16", (4, 64), stored=True))
    assert judgment.arithmetic == "bf16: x^, gamma x^ stored"
    assert "bf16: x^ stored" in judgment.outputs["y"][OTHERS]
    assert "fp32-inside" not in judgment.outputs["y"][OTHERS]
    larger = gonogo.judge(**case("bf16", (16, 64), stored=True))
    assert larger.arithmetic == judgment.arithmetic
    assert "bf16: x^ stored" not in larger.outputs["y"].get(OTHERS, [])


def test_a_large_output_is_not_asked_for_others() -> None:
    assert OTHERS not in gonogo.judge(**case("fp32", (17, 256))).outputs["y"]
    assert RUNNING in gonogo.judge(**case("fp32", (16, 256))).outputs["y"][OTHERS]


def test_an_output_that_nothing_explains_has_none() -> None:
    arguments = case("fp32", (4, 64))
    y = arguments["outputs"]["y"] * np.float32(1.01)
    assert OTHERS not in gonogo.judge(**{**arguments, "outputs": {"y": y}}).outputs["y"]


def test_the_words_and_the_pool_name_those_that_explain_every_seed() -> None:
    arguments = case("bf16", (4, 64))
    judgment = gonogo.judge(**{**arguments, "tolerance": {"rtol": 1e-9, "atol": 0.0}})
    assert judgment.verdict == "fail_by_tolerance"
    assert f"y: other arithmetic models explain it too: {RUNNING}" in judgment.words
    without = {**judgment.outputs["y"], OTHERS: judgment.outputs["y"][OTHERS][1:]}
    other = gonogo.Judgment("pass", "explained", "fp32-inside", outputs={"y": without})
    assert gonogo.pool([judgment, other]).outputs["y"][OTHERS] == without[OTHERS]

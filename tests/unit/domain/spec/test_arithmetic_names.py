"""Names of arithmetic models: what is accepted, its canonical spelling, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from gonogo.errors import FieldError
from gonogo.judging.inputs import generate, quantise
from gonogo.kernels import registry
from gonogo.numerics.replay.program import QUANTITIES
from gonogo.spec.arithmetic_names import (
    ALIASES,
    BUDGETS,
    FORMATS,
    MAX_PROGRAMS,
    NamedArithmetic,
    budget_of,
    canonical,
)
from gonogo.spec.program_name import ProgramName
from gonogo.spec.test_spec import TestSpec

ROWS = "column sums: rows in order"


@pytest.mark.parametrize(
    ("text", "spelling"),
    [
        ("generic", "generic"),
        (" fp32-inside ", "fp32-inside"),
        ("bf16: gamma x^, x^ stored", "bf16: x^, gamma x^ stored"),
        ("16-bit: x^ stored", "16-bit: x^ stored"),
        (
            "fp32-inside, running sums, variance as E[x^2] - mean^2",
            "fp32-inside, variance as E[x^2] - mean^2, running sums",
        ),
        (
            f"fp16: column sum, x^ stored, {ROWS}, in 2 parts",
            f"fp16: x^, column sum stored, {ROWS}, in 2 parts",
        ),
        ("fp32-inside;dx: bf16: P stored", "fp32-inside; dx: bf16: P stored"),
        ("dx: fp32-inside; dx: fp32-inside", "dx: fp32-inside"),
        (None, None),
    ],
)
def test_a_name_has_one_spelling(text: str | None, spelling: str | None) -> None:
    assert canonical(text) == spelling
    assert canonical(spelling) == spelling


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["must be an arithmetic model"]),
        (7, ["must be an arithmetic model", "generic, tt-train, ttnn"]),
        ("tt_train", ["did you mean 'tt-train'?", "fp32, torch, torch-eager", "fp32-inside"]),
        ("fp32 inside", ["did you mean 'fp32-inside'?"]),
        ("unknown", ["is not an arithmetic model"]),
        ("generic; fp32-inside", ["is not an arithmetic model"]),
        ("bf16: x^, gama x^ stored", ["'gama x^' is not a stored quantity", "mean 'gamma x^'?"]),
        ("bf61: x^ stored", ["'bf61' is not an output or a format", "did you mean 'bf16'?", "dx"]),
        ("dgama: fp32-inside", ["'dgama' is not an output", "did you mean 'dgamma'?"]),
        ("fp32-inside, runing sums", ["'runing sums' is not a trait", "mean 'running sums'?"]),
        (f"fp32-inside, {ROWS[:-1]}", ["an order of column sums", "mean 'rows in order'?"]),
        ("fp32-inside, running sums, running means", ["one order of the sums along a row"]),
        ("; ".join(["dx: fp32-inside"] * (MAX_PROGRAMS + 1)), ["too many programs", "16"]),
    ],
)
def test_what_is_unknown_is_named_with_what_is_allowed(text: Any, words: list[str]) -> None:
    with pytest.raises(FieldError) as caught:
        canonical(text, "build.arithmetic")
    assert caught.value.field == "build.arithmetic"
    for part in words:
        assert part in str(caught.value)


def test_every_stored_quantity_of_every_kernel_may_be_named() -> None:
    stored = set()
    for kernel, numerics in (
        ("layernorm_fw", {}),
        ("layernorm_bw", {}),
        ("layernorm_bw", {"statistics": "own"}),
        ("rmsnorm_fw", {}),
        ("rmsnorm_bw", {}),
        ("rmsnorm_bw", {"statistics": "own"}),
    ):
        # so small a variance shows a stored epsilon
        test = TestSpec.parse(
            {"kernel": kernel, "shape": [4, 8], "numerics": numerics, "epsilon": 0.5}
        )
        for graph in (
            registry.numerics(test).graphs(test, quantise(test, generate(test, 0))).values()
        ):
            for form in graph.forms:
                stored |= {*graph.storable(form)}
            stored |= {name for _, names in graph.known for name in names}
    assert stored == set(QUANTITIES)
    name = f"bf16: {', '.join(reversed(QUANTITIES))} stored"
    assert canonical(name) == f"bf16: {', '.join(QUANTITIES)} stored"


def test_an_output_may_be_explained_by_its_own_programs_and_by_those_of_all() -> None:
    named = NamedArithmetic.parse("fp32-inside; dx: 16-bit: mean, rstd stored")
    assert named.permitted("y") == (ProgramName({}, ()),)
    assert named.permitted("dx") == (
        ProgramName({}, ()),
        ProgramName({"mean": "16-bit", "rstd": "16-bit"}, ()),
    )
    assert NamedArithmetic.parse("dx: fp32-inside").permitted("y") == ()


@pytest.mark.parametrize("alias", ALIASES)
def test_old_names_are_aliases_of_programs(alias: str) -> None:
    named = NamedArithmetic.parse(alias)
    assert named.wormhole is None
    assert named.permitted("y")[0] == ProgramName({}, ())
    assert canonical(alias) == named.name != alias
    assert canonical(named.name) == named.name


def test_programs_that_store_nothing_have_the_budget_of_fp32_and_others_the_generic_one() -> None:
    assert [budget_of(name) for name in BUDGETS] == list(BUDGETS)
    assert budget_of("fp32") == budget_of("fp32-inside, running sums") == "fp32"
    assert budget_of("bf16: x^ stored") is None
    assert budget_of(None) is None


def test_formats_are_no_outputs() -> None:
    for form in FORMATS:
        assert NamedArithmetic.parse(f"{form}: x^ stored").programs[0].output is None

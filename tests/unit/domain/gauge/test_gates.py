"""The gates of public suites: each limit by hand, which runs they judge, and their names."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

from gonogo.arithmetic.formats import FORMATS
from gonogo.errors import FieldError
from gonogo.gauge.gates import FORMATS as GATED_FORMATS
from gonogo.gauge.gates import GATES, Gate, judging, named
from gonogo.gauge.measure import gate_ratios
from gonogo.gauge.report import gate_passes
from gonogo.kernels.registry import KERNELS
from gonogo.spec.test_spec import TestSpec
from numeric_cases import spec

EDGE = 1 + 1e-6
"""Just beyond a limit."""


def ratio(
    gate: str, output: list[float], reference: list[float], form: str = "fp32"
) -> float | None:
    """Return the ratio of one row of outputs."""
    return gate_ratios([GATES[gate]], form, np.array([output], np.float32), np.array([reference]))[
        gate
    ]


@pytest.mark.parametrize(
    ("gate", "output_format", "rtol", "atol"),
    [
        ("torch-testing", "fp32", 1.3e-6, 1e-5),
        ("torch-testing", "bf16", 1.6e-2, 1e-5),
        ("torch-testing", "fp16", 1e-3, 1e-5),
        ("jax-testing", "fp32", 1e-6, 1e-6),
        ("jax-testing", "bf16", 1e-2, 1e-2),
        ("jax-testing", "fp16", 1e-3, 1e-3),
        ("kernelbench", "fp32", 1e-2, 1e-2),
        ("kernelbench-by-precision", "fp32", 1e-4, 1e-4),
        ("kernelbench-by-precision", "bf16", 1e-2, 1e-2),
        ("backendbench", "fp16", 1e-2, 1e-2),
        ("robust-kbench", "bf16", 1e-5, 1e-5),
    ],
)
def test_a_table_s_limit_is_atol_plus_rtol_times_the_expected_size(
    gate: str, output_format: str, rtol: float, atol: float
) -> None:
    error = 0.125  # 4 and 4.125 are numbers of every format
    assert ratio(gate, [4 + error], [4.0], output_format) == pytest.approx(
        error / (atol + 4 * rtol)
    )


def test_a_perfectly_rounded_output_is_equal_to_the_bit_and_passes_every_gate() -> None:
    third = float(np.float32(0.333984375))  # bf16's number nearest to 1/3
    gates = [gate for gate in GATES.values() if not gate.tolerance]
    output = np.array([[third, 1.0, -2.0]], np.float32)
    ratios = gate_ratios(gates, "bf16", output, np.array([[1 / 3, 1.0, -2.0]]))
    assert set(ratios) == {gate.name for gate in gates}
    assert set(ratios.values()) == {0.0}


def test_flashinfer_bench_fails_an_element_only_beyond_both_errors() -> None:
    assert ratio("flashinfer-bench", [100.9], [100.0]) < 1  # type: ignore[operator]
    assert ratio("flashinfer-bench", [0.009], [0.0]) < 1  # type: ignore[operator]
    assert ratio("flashinfer-bench", [0.511], [0.5]) > 1  # type: ignore[operator]


def test_ulp_gates_count_the_output_format_s_steps() -> None:
    off = 1 + 5 * 2.0**-7
    for gate, limit in (("ulp-1", 1), ("ulp-5", 5), ("ulp-10", 10)):
        assert ratio(gate, [off], [1.0], "bf16") == pytest.approx(5 / limit)
    assert ratio("bit-equal", [1.0], [1 + 2.0**-10], "bf16") == 0
    assert ratio("bit-equal", [1 + 2.0**-7], [1.0], "bf16") is None


def test_nan_passes_no_gate_also_in_an_output_that_the_gate_does_not_compare() -> None:
    assert ratio("kernelbench", [math.nan, 1.0], [1.0, 1.0]) is None
    outputs = {
        "dx": {"gates": {"kernelbench": 0.5}, "nonfinite": 0},
        "mean": {"gates": {}, "nonfinite": 2},
    }
    assert gate_passes(GATES["kernelbench"], {"outputs": outputs}) is False
    outputs["mean"]["nonfinite"] = 0
    assert gate_passes(GATES["kernelbench"], {"outputs": outputs}) is True


def test_a_ratio_beyond_1_in_any_output_fails_and_exactly_1_passes() -> None:
    def answer(dx: float | None, dgamma: float) -> bool | None:
        outputs = {"dx": {"gates": {"ulp-1": dx}}, "dgamma": {"gates": {"ulp-1": dgamma}}}
        return gate_passes(GATES["ulp-1"], {"outputs": outputs})

    assert answer(1.0, 1.0) is True
    assert answer(EDGE, 0.0) is False
    assert answer(0.0, EDGE) is False
    assert answer(None, 0.0) is False


def test_a_tolerance_by_output_judges_each_output_by_its_own() -> None:
    def answer(dx: float, dgamma: float) -> bool | None:
        outputs = {
            name: {"nonfinite": 0, "needed_atol": {"0.001": needed}}
            for name, needed in (("dx", dx), ("dgamma", dgamma))
        }
        return gate_passes(GATES["tt-train-53215"], {"outputs": outputs})

    assert answer(0.02, 0.05) is True
    assert answer(0.021, 0.0) is False
    assert answer(0.0, 0.051) is False


def test_a_gate_judges_the_kernels_and_the_formats_of_its_suite_only() -> None:
    def names(test: TestSpec) -> set[str]:
        return {gate.name for gate in judging(test)}

    forward, backward = names(spec("layernorm_fw", (4, 64))), names(spec("layernorm_bw", (4, 64)))
    assert "tt-train-forward" in forward - backward
    assert "kernelbench" in forward & backward & names(spec("rmsnorm_fw", (4, 64)))
    assert {"moreh-backward", "tt-train-nightly"} <= backward - names(spec("rmsnorm_bw", (4, 64)))
    blocked = names(spec("layernorm_fw", (4, 64), numerics={"output": "bfp8_b"}))
    assert "kernelbench" not in blocked
    assert "ttnn-bf16" in blocked


def test_an_unknown_gate_is_refused_with_the_nearest_name_and_all_names() -> None:
    with pytest.raises(FieldError) as problem:
        named(["pcc-.99", "kernelbnch"], "gates")
    assert problem.value.field == "gates.1"
    assert "did you mean 'kernelbench'?" in str(problem.value)
    assert all(name in str(problem.value.limit) for name in GATES)
    with pytest.raises(FieldError, match="is named twice"):
        named(["ulp-1", "ulp-1"])


@pytest.mark.parametrize("gate", GATES.values(), ids=list(GATES))
def test_every_gate_says_its_limit_for_every_test_that_it_judges(gate: Gate) -> None:
    assert gate.sentence
    assert gate.source
    for kernel, kind in KERNELS.items():
        for output_format, form in FORMATS.items():
            allowed = kind.block_formats or form.block == 1
            if allowed and gate.judges(kernel, output_format):
                assert gate.limit_in(output_format)


def gates_table() -> str:
    """Return the table of gates that docs/gauge.md must hold."""
    rows = ["| gate | suite | limit | described in |", "|---|---|---|---|"]
    for gate in GATES.values():
        by_format = {name: gate.limit_in(name) for name in GATED_FORMATS}
        limit = (
            by_format["fp32"]
            if len(set(by_format.values())) == 1
            else "; ".join(f"{name}: {words}" for name, words in by_format.items())
        ).replace("|", "\\|")
        rows.append(f"| `{gate.name}` | {gate.sentence} | {limit} | {gate.source} |")
    return "\n".join(rows)


def test_the_table_in_the_docs_is_the_code_s() -> None:
    text = (Path(__file__).parents[4] / "docs" / "gauge.md").read_text("utf-8")
    section = re.search(r"<!-- gates -->\n(.*?)\n<!-- /gates -->", text, re.DOTALL)
    assert section is not None
    assert section[1] == gates_table(), f"docs/gauge.md must hold:\n{gates_table()}"

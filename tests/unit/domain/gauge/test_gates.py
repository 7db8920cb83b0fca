"""The gates of public suites: each limit by hand, which runs they judge, and their names."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo.arithmetic.formats import FORMATS
from gonogo.errors import FieldError
from gonogo.gauge import limits
from gonogo.gauge.gates import CALIBRATED, GATES, Gate, judging, named
from gonogo.gauge.gates import FORMATS as GATED_FORMATS
from gonogo.gauge.report import gate_passes
from gonogo.kernels.registry import KERNELS
from gonogo.spec.test_spec import TestSpec
from numeric_cases import spec

EDGE = 1 + 1e-6
"""Just beyond a limit."""


def fp32(kernel: str = "layernorm_fw", **changes: Any) -> TestSpec:
    return spec(kernel, (1, 4), numerics={"input": "fp32", "output": "fp32"}, **changes)


def ratio(
    gate: str,
    output: list[float],
    reference: list[float],
    *,
    test: TestSpec | None = None,
    name: str = "y",
    gamma: float = 1.0,
    beta: float = 0.0,
) -> float | None:
    """Return the ratio of one row of outputs."""
    given: dict[str, NDArray[np.float32]] = {
        "gamma": np.full(len(output), gamma, np.float32),
        "beta": np.full(len(output), beta, np.float32),
    }
    return limits.ratios(
        test or fp32(),
        name,
        given,
        np.array([reference]),
        np.array([output], np.float32),
        [GATES[gate]],
    )[gate]


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
    test = spec("layernorm_fw", (1, 1), numerics={"output": output_format})
    error = 0.125  # 4 and 4.125 are numbers of every format
    assert ratio(gate, [4 + error], [4.0], test=test) == pytest.approx(error / (atol + 4 * rtol))


def test_a_perfectly_rounded_output_is_equal_to_the_bit_and_passes_every_gate() -> None:
    test = spec("layernorm_fw", (1, 3), numerics={"output": "bf16"})
    third = float(np.float32(0.333984375))  # bf16's number nearest to 1/3
    gates = [gate for gate in GATES.values() if not gate.tolerance]
    given = {"gamma": np.ones(3, np.float32), "beta": np.zeros(3, np.float32)}
    ratios = limits.ratios(
        test,
        "y",
        given,
        np.array([[1 / 3, 1.0, -2.0]]),
        np.array([[third, 1.0, -2.0]], np.float32),
        gates,
    )
    assert set(ratios) == {gate.name for gate in gates}
    assert set(ratios.values()) == {0.0}


def test_flashinfer_bench_fails_an_element_only_beyond_both_errors() -> None:
    assert ratio("flashinfer-bench", [100.9], [100.0]) < 1  # type: ignore[operator]
    assert ratio("flashinfer-bench", [0.009], [0.0]) < 1  # type: ignore[operator]
    assert ratio("flashinfer-bench", [0.511], [0.5]) > 1  # type: ignore[operator]


def test_composable_kernel_s_threshold_grows_with_the_additions_beyond_the_output_s_rounding() -> (
    None
):
    # .5 * 2^-23 a sum: four additions in fp32, of values up to 2
    limit = 4 * 2.0**-24
    assert ratio("composable-kernel", [1 + 2.0**-22, 2, 2, 2], [1.0, 2, 2, 2]) == pytest.approx(
        2.0**-22 / (limit * (1 + 2))
    )
    # bf16's own rounding is larger, until 2^16 additions
    bf16 = spec("layernorm_fw", (1, 4), numerics={"output": "bf16"})
    assert ratio("composable-kernel", [1.25, 1, 1, 1], [1.0] * 4, test=bf16) == pytest.approx(
        0.25 / (2.0**-8 * 2)
    )


def test_composable_kernel_counts_rows_for_sums_down_the_columns() -> None:
    test = spec("layernorm_bw", (64, 4), numerics={"input": "fp32", "output": "fp32"})
    error = 2.0**-18
    for name, additions in (("dgamma", 64), ("dx", 4)):
        assert ratio(
            "composable-kernel", [1 + error] * 4, [1.0] * 4, test=test, name=name
        ) == pytest.approx(error / (additions * 2.0**-24 * 2))


def test_hipdnn_s_tolerance_is_that_of_its_own_examples() -> None:
    # its unit tests: fp32, M = 10, |gamma| up to 1, no bias: growth(20)/2 + growth(10) + 5 u
    u = 2.0**-23
    growth = {k: 2 * k * u / (1 - 2 * k * u) for k in (10, 20)}
    expected = growth[20] / 2 + growth[10] + 5 * u
    assert limits.hipdnn("fp32", 10, 1.0, 0.0) == pytest.approx(expected, rel=1e-12)
    # bf16 outputs add their step at 1, times |gamma| + |beta|; a bias adds u
    assert limits.hipdnn("bf16", 10, 1.0, 0.5) == pytest.approx(
        expected + 0.5 * u + 1.5 * 2.0**-7, rel=1e-12
    )
    # from 2ku = .01 on the growth is statistical: 6 sqrt(2k) u
    long = 2**20
    assert limits.hipdnn("fp32", long, 1.0, 0.0) == pytest.approx(
        (6 * math.sqrt(4 * long) / 2 + 6 * math.sqrt(2 * long) + 5) * u, rel=1e-12
    )


def test_hipdnn_s_tolerance_uses_the_largest_gamma_and_beta_of_the_inputs() -> None:
    assert ratio("hipdnn", [1.5] * 4, [1.0] * 4, gamma=-3.0, beta=2.0) == pytest.approx(
        0.5 / limits.hipdnn("fp32", 4, 3.0, 2.0)
    )


def test_benchdnn_compares_each_forward_element_with_its_own_size() -> None:
    threshold = 5e-7
    error = 2.0**-20
    assert ratio("benchdnn", [4 + error], [4.0]) == pytest.approx(error / (4 * threshold))
    # tiny values: the difference itself, and less than fp32's step at 1 never counts
    assert ratio("benchdnn", [1e-5], [0.0]) == pytest.approx(1e-5 / threshold, rel=1e-4)
    # in bf16 the threshold is 2^16 times as large
    bf16 = spec("layernorm_fw", (1, 1), numerics={"output": "bf16"})
    assert ratio("benchdnn", [4.125], [4.0], test=bf16) == pytest.approx(
        0.125 / (4 * threshold * 2**16)
    )


def test_benchdnn_forgives_cancellation_between_the_product_and_beta() -> None:
    # y = a x + beta with beta = 8 and y = .5: an error of 4e-6 is small for a x = -7.5
    error = 2.0**-18
    assert ratio("benchdnn", [0.5 + error], [0.5], beta=8.0) == pytest.approx(error / (7.5 * 5e-7))
    assert ratio("benchdnn", [0.5 + error], [0.5]) == pytest.approx(error / (0.5 * 5e-7))


def test_benchdnn_compares_gradients_by_their_norm() -> None:
    test = fp32("layernorm_bw")
    output, reference = [3.0, 4.0, 0.0, 0.001], [3.0, 4.0, 0.0, 0.0]
    for name, threshold in (("dx", 5e-7), ("dgamma", 5e-6)):
        assert ratio("benchdnn", output, reference, test=test, name=name) == pytest.approx(
            0.001 / 5 / threshold, rel=1e-6
        )
    assert ratio("benchdnn", [1.0], [0.0], test=test, name="dx") is None


def test_ulp_gates_count_the_output_format_s_steps() -> None:
    bf16 = spec("layernorm_fw", (1, 1), numerics={"output": "bf16"})
    off = 1 + 5 * 2.0**-7
    for gate, limit in (("ulp-1", 1), ("ulp-5", 5), ("ulp-10", 10)):
        assert ratio(gate, [off], [1.0], test=bf16) == pytest.approx(5 / limit)
    assert ratio("bit-equal", [1.0], [1 + 2.0**-10], test=bf16) == 0
    assert ratio("bit-equal", [1 + 2.0**-7], [1.0], test=bf16) is None


def test_nan_passes_no_gate_also_in_an_output_that_the_gate_does_not_compare() -> None:
    assert ratio("kernelbench", [math.nan, 1.0], [1.0, 1.0]) is None
    outputs = {
        "dx": {"gates": {"benchdnn": 0.5}, "nonfinite": 0},
        "mean": {"gates": {}, "nonfinite": 2},
    }
    assert gate_passes(GATES["benchdnn"], {"outputs": outputs}) is False
    outputs["mean"]["nonfinite"] = 0
    assert gate_passes(GATES["benchdnn"], {"outputs": outputs}) is True


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
    assert "hipdnn" in forward - backward
    assert "benchdnn" in forward & backward
    assert "benchdnn" not in names(spec("rmsnorm_fw", (4, 64)))
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


@pytest.mark.parametrize(
    ("gate", "measured", "output_format", "limit"),
    [
        ("gpuemu", 0.01, "bf16", {"atol": pytest.approx(0.015)}),
        ("llk-ulp-budgets", 2.1, "bf16", {"ulp": 3}),
        ("llk-ulp-budgets", 0.0, "fp32", {"ulp": 1}),
        ("llk-ulp-budgets", 5.0, "bf16", {"rtol": 0.05, "atol": 0.05, "pcc": 0.99}),
        ("llk-ulp-budgets", math.inf, "fp32", {"rtol": 0.05, "atol": 0.05, "pcc": 0.99}),
    ],
)
def test_a_calibrated_gate_s_limit_follows_what_right_kernels_have(
    gate: str, measured: float, output_format: str, limit: dict[str, float]
) -> None:
    assert CALIBRATED[gate].limit(measured, output_format) == limit

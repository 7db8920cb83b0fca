"""The gates of public suites: each limit by hand, which runs they judge, and who chooses them."""

from __future__ import annotations

import json
import math
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from gonogo.arithmetic.formats import FORMATS
from gonogo.cli.app import app
from gonogo.errors import FieldError
from gonogo.gauge.gates import FORMATS as GATED_FORMATS
from gonogo.gauge.gates import GATES, Gate, judging, named
from gonogo.gauge.measure import gate_ratios
from gonogo.gauge.report import gate_passes, report
from gonogo.gauge.tests_file import parse
from gonogo.kernels.registry import KERNELS
from gonogo.reports.check_line import gauge_line
from gonogo.spec.test_spec import TestSpec
from numeric_cases import spec

EDGE = 1 + 1e-6
"""Just beyond a limit."""


def ratio(gate: str, output: list[float], reference: list[float], form: str = "fp32") -> Any:
    """Return the ratio of one row of outputs, or None."""
    arrays = np.array([output], np.float32), np.array([reference])
    return gate_ratios([GATES[gate]], form, *arrays)[gate]


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
    expected = error / (atol + 4 * rtol)
    assert ratio(gate, [4 + error], [4.0], output_format) == pytest.approx(expected)


def test_a_perfectly_rounded_output_is_equal_to_the_bit_and_passes_every_gate() -> None:
    third = float(np.float32(0.333984375))  # bf16's number nearest to 1/3
    gates = [gate for gate in GATES.values() if not gate.tolerance]
    output = np.array([[third, 1.0, -2.0]], np.float32)
    ratios = gate_ratios(gates, "bf16", output, np.array([[1 / 3, 1.0, -2.0]]))
    assert ratios == dict.fromkeys((gate.name for gate in gates), 0.0)


def test_flashinfer_bench_fails_an_element_only_beyond_both_errors() -> None:
    assert ratio("flashinfer-bench", [100.9], [100.0]) < 1
    assert ratio("flashinfer-bench", [0.009], [0.0]) < 1
    assert ratio("flashinfer-bench", [0.511], [0.5]) > 1


def test_ulp_gates_count_the_output_format_s_steps() -> None:
    for gate, limit in (("ulp-1", 1), ("ulp-5", 5), ("ulp-10", 10)):
        assert ratio(gate, [1 + 5 * 2.0**-7], [1.0], "bf16") == pytest.approx(5 / limit)
    assert ratio("bit-equal", [1.0], [1 + 2.0**-10], "bf16") == 0
    assert ratio("bit-equal", [1 + 2.0**-7], [1.0], "bf16") is None
    assert ratio("kernelbench", [math.nan, 1.0], [1.0, 1.0]) is None


def rated(gate: str, ratio: float | None, **more: Any) -> dict[str, Any]:
    return {"gates": {gate: ratio}, **more}


def needing(atol: float) -> dict[str, Any]:
    return {"nonfinite": 0, "needed_atol": {"0.001": atol}}


@pytest.mark.parametrize(
    ("gate", "dx", "dgamma", "passes"),
    [
        ("ulp-1", rated("ulp-1", 1.0), rated("ulp-1", 1.0), True),
        ("ulp-1", rated("ulp-1", EDGE), rated("ulp-1", 0.0), False),
        ("ulp-1", rated("ulp-1", 0.0), rated("ulp-1", EDGE), False),
        ("ulp-1", rated("ulp-1", None), rated("ulp-1", 0.0), False),
        ("kernelbench", rated("kernelbench", 0.5), {"gates": {}, "nonfinite": 0}, True),
        ("kernelbench", rated("kernelbench", 0.5), {"gates": {}, "nonfinite": 2}, False),
        ("tt-train-53215", needing(0.02), needing(0.05), True),  # each output by its own
        ("tt-train-53215", needing(0.021), needing(0.0), False),
        ("tt-train-53215", needing(0.0), needing(0.051), False),
    ],
)
def test_a_run_passes_if_no_output_is_beyond_its_limit_or_has_nan(
    gate: str, dx: dict[str, Any], dgamma: dict[str, Any], passes: bool
) -> None:
    assert gate_passes(GATES[gate], {"outputs": {"dx": dx, "dgamma": dgamma}}) is passes


def test_a_gate_judges_the_kernels_and_the_formats_of_its_suite_only() -> None:
    def names(kernel: str, **numerics: str) -> set[str]:
        return {gate.name for gate in judging(spec(kernel, (4, 64), numerics=numerics))}

    forward, backward = names("layernorm_fw"), names("layernorm_bw")
    assert "tt-train-forward" in forward - backward
    assert "kernelbench" in forward & backward & names("rmsnorm_fw")
    assert {"moreh-backward", "tt-train-nightly"} <= backward - names("rmsnorm_bw")
    blocked = names("layernorm_fw", output="bfp8_b")
    assert ("kernelbench" in blocked, "ttnn-bf16" in blocked) == (False, True)


@pytest.mark.parametrize("gate", GATES.values(), ids=list(GATES))
def test_every_gate_says_its_limit_for_every_test_that_it_judges(gate: Gate) -> None:
    assert gate.sentence
    assert gate.source
    for kernel, kind in KERNELS.items():
        for output_format, form in FORMATS.items():
            allowed = kind.block_formats or form.block == 1
            if allowed and gate.judges(kernel, output_format):
                assert gate.limit_in(output_format)


def test_the_table_in_the_docs_is_the_code_s() -> None:
    rows = ["| gate | suite | limit | described in |", "|---|---|---|---|"]
    for gate in GATES.values():
        by_format = {name: gate.limit_in(name) for name in GATED_FORMATS}
        limits = [f"{name}: {words}" for name, words in by_format.items()]
        one = len(set(by_format.values())) == 1
        limit = (by_format["fp32"] if one else "; ".join(limits)).replace("|", "\\|")
        rows.append(f"| `{gate.name}` | {gate.sentence} | {limit} | {gate.source} |")
    text = (Path(__file__).parents[4] / "docs" / "gauge.md").read_text("utf-8")
    (table,) = re.findall(r"<!-- gates -->\n(.*?)\n<!-- /gates -->", text, re.DOTALL)
    assert table == "\n".join(rows)


# their choice

TEST: dict[str, Any] = {"kernel": "layernorm_bw", "shape": [4, 40]}
FLAGS = ("gauge", "--shape", "4,40", "--seeds", "1", "--no-search")


def test_chosen_gates_are_the_ones_reported_with_their_limits_and_sources() -> None:
    chosen = [*FLAGS, "--gate", "kernelbench", "--gate", "pcc-.99", "--gate", "tt-train-forward"]
    gates = json.loads(CliRunner().invoke(app, [*chosen, "--json"]).stdout)["gates"]
    assert list(gates) == ["kernelbench", "pcc-.99"]  # the third is for another kernel
    assert gates["kernelbench"]["limit"] == "rtol 0.01, atol 0.01"
    assert gates["kernelbench"]["source"].startswith("ScalingIntelligence/KernelBench")
    assert gates["kernelbench"]["false_alarms"]["of"] == 4
    assert "mean-not-subtracted" in gates["pcc-.99"]["missed"]
    table = CliRunner().invoke(app, chosen).stdout
    assert re.search(r"^kernelbench .*rtol 0\.01", table, re.MULTILINE)


def test_an_unknown_gate_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(FieldError, match="is named twice"):
        named(["ulp-1", "ulp-1"])
    result = CliRunner().invoke(app, [*FLAGS, "--gate", "robust-kbnch"])
    assert isinstance(result.exception, FieldError)
    begins = "gate.0: unknown gate; did you mean 'robust-kbench'? (allowed: one of ttnn-bf16, "
    assert str(result.exception).startswith(begins)


def test_a_file_s_entries_choose_gates_by_name() -> None:
    (entry,) = parse([{"test": TEST, "gates": ["ulp-10"]}], seeds=1)
    assert entry.gates == ("ulp-10",)
    with pytest.raises(FieldError, match=r"entries\.0\.gates\.1"):
        parse([{"test": TEST, "gates": ["ulp-1", "ulp-9"]}], seeds=1)
    with pytest.raises(FieldError, match=r"must be a list \(allowed: names of gates\)"):
        parse([{"test": TEST, "gates": "ulp-10"}], seeds=1)
    result = CliRunner().invoke(app, ["gauge", "tests.json", "--gate", "ulp-10"])
    assert "is given by the file" in str(result.exception)


def test_the_line_that_measures_again_names_the_gates() -> None:
    canonical = TestSpec.parse(TEST).canonical()
    line = gauge_line(canonical, start=0, count=1, gates=["ulp-10", "kernelbench"])
    words = shlex.split(line)
    chosen = [words[place + 1] for place, word in enumerate(words) if word == "--gate"]
    assert chosen == ["ulp-10", "kernelbench"]
    assert "--gate" not in gauge_line(canonical, start=0, count=1)


def test_a_report_counts_only_rows_that_have_a_gate_s_number() -> None:
    """Rows that an older worker stored have none."""

    def row(part: str, ratio: float | None, able: bool | None) -> dict[str, Any]:
        gates = {} if ratio is None else {"gates": {"ulp-10": ratio}}
        outputs = {"dx": {"nonfinite": 0, "explanation": "explained", **gates}}
        about = {"verdict": "pass", "explanation": "explained", "edges": None, "seed": 0}
        kind = "no_go" if able else "go"
        return {**about, "part": part, "kind": kind, "able": able, "outputs": outputs}

    right = [row("correct", 0.5, None), row("reversed", 3.0, None), row("older", None, None)]
    wrong = [row("bug", 2.0, True), row("subtle", 1.0, True), row("older bug", None, True)]
    gate = report(TestSpec.parse(TEST), [*right, *wrong], ["ulp-10"]).gates["ulp-10"]
    assert (gate.false_alarms.count, gate.false_alarms.of) == (1, 2)
    assert (gate.rejected, gate.missed) == (["bug"], ["subtle"])
    assert report(TestSpec.parse(TEST), right[2:], ["ulp-10"]).gates == {}

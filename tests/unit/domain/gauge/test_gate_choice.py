"""The choice of gates: on the command line, in a file, over HTTP, and in the line that repeats."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
from typer.testing import CliRunner

import gonogo.settings
from gonogo.cli.app import app
from gonogo.errors import FieldError
from gonogo.gauge.report import report
from gonogo.gauge.tests_file import parse
from gonogo.reports.check_line import gauge_line
from gonogo.spec.test_spec import TestSpec
from gonogo_service.gauges.bodies import GaugeIn
from gonogo_service.gauges.submission import check

TEST: dict[str, Any] = {"kernel": "layernorm_bw", "shape": [4, 40]}
FLAGS = ("gauge", "--shape", "4,40", "--seeds", "1", "--no-search")


def test_chosen_gates_are_the_ones_reported_with_their_limits_and_sources() -> None:
    result = CliRunner().invoke(
        app, [*FLAGS, "--gate", "kernelbench", "--gate", "pcc-.99", "--json"]
    )
    gates = json.loads(result.stdout)["gates"]
    assert list(gates) == ["kernelbench", "pcc-.99"]
    assert gates["kernelbench"]["limit"] == "rtol 0.01, atol 0.01"
    assert gates["kernelbench"]["source"].startswith("ScalingIntelligence/KernelBench")
    assert gates["kernelbench"]["false_alarms"]["of"] == 4
    assert "mean-not-subtracted" in gates["pcc-.99"]["missed"]


def test_a_gate_that_does_not_judge_the_kernel_is_left_out() -> None:
    result = CliRunner().invoke(app, [*FLAGS, "--gate", "tt-train-forward", "--json"])
    assert json.loads(result.stdout)["gates"] == {}


def test_the_table_has_each_gate_s_limit() -> None:
    table = CliRunner().invoke(app, [*FLAGS, "--gate", "kernelbench"]).stdout
    (line,) = [line for line in table.splitlines() if line.startswith("kernelbench")]
    assert "rtol 0.01" in line


def test_an_unknown_gate_is_a_usage_error_before_anything_runs() -> None:
    result = CliRunner().invoke(app, [*FLAGS, "--gate", "robust-kbnch"])
    assert isinstance(result.exception, FieldError)
    assert str(result.exception).startswith(
        "gate.0: unknown gate; did you mean 'robust-kbench'? (allowed: one of ttnn-bf16, "
    )


def test_a_file_s_entries_choose_gates_by_name() -> None:
    (entry,) = parse([{"test": TEST, "gates": ["ulp-10"]}], seeds=1)
    assert entry.gates == ("ulp-10",)
    with pytest.raises(FieldError) as problem:
        parse([{"test": TEST, "gates": ["ulp-1", "ulp-9"]}], seeds=1)
    assert problem.value.field == "entries.0.gates.1"
    with pytest.raises(FieldError, match=r"must be a list \(allowed: names of gates\)"):
        parse([{"test": TEST, "gates": "ulp-10"}], seeds=1)
    result = CliRunner().invoke(app, ["gauge", "tests.json", "--gate", "ulp-10"])
    assert "is given by the file" in str(result.exception)


def test_a_gauge_over_http_is_refused_for_an_unknown_gate() -> None:
    settings = gonogo.settings.load()
    body: dict[str, Any] = {"test": TEST, "seeds": {"count": 1}}
    with pytest.raises(FieldError) as problem:
        check(GaugeIn.model_validate({**body, "gates": ["kernelbnch"]}), settings)
    assert problem.value.field == "gates.0"
    assert "did you mean 'kernelbench'?" in str(problem.value)
    assert check(GaugeIn.model_validate({**body, "gates": ["kernelbench"]}), settings)


def test_the_line_that_measures_again_names_the_gates() -> None:
    canonical = TestSpec.parse(TEST).canonical()
    line = gauge_line(canonical, start=0, count=1, gates=["ulp-10", "kernelbench"])
    words = shlex.split(line)
    assert [words[place + 1] for place, word in enumerate(words) if word == "--gate"] == [
        "ulp-10",
        "kernelbench",
    ]
    assert "--gate" not in gauge_line(canonical, start=0, count=1)


def test_a_report_counts_only_rows_that_have_a_gate_s_number() -> None:
    """Rows that an older worker stored have none."""

    def row(part: str, ratio: float | None, *, right: bool) -> dict[str, Any]:
        gates = {} if ratio is None else {"gates": {"ulp-10": ratio}}
        return {
            "part": part,
            "kind": "go" if right else "no_go",
            "seed": 0,
            "able": None if right else True,
            "verdict": "pass",
            "explanation": "explained",
            "outputs": {"dx": {"nonfinite": 0, "explanation": "explained", **gates}},
            "edges": None,
        }

    rows = [
        row("correct", 0.5, right=True),
        row("reversed", 3.0, right=True),
        row("older", None, right=True),
        row("bug", 2.0, right=False),
        row("subtle", 1.0, right=False),
        row("older bug", None, right=False),
    ]
    gate = report(TestSpec.parse(TEST), rows, ["ulp-10"]).gates["ulp-10"]
    assert (gate.false_alarms.count, gate.false_alarms.of) == (1, 2)
    assert (gate.rejected, gate.missed) == (["bug"], ["subtle"])
    assert report(TestSpec.parse(TEST), rows[2:3], ["ulp-10"]).gates == {}

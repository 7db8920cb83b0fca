"""`python -m benchmarks.yardstick`: what counts as a plain fault, and who caught it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.strangers.wrongs import WRONGS
from benchmarks.yardstick import families
from benchmarks.yardstick.__main__ import main
from benchmarks.yardstick.bench import Bench, Kernel, Result, Showing, results, shows
from benchmarks.yardstick.counts import SUSPECT, UNEXPLAINED, counted, passes
from gonogo.judging.inputs import generate, quantise
from gonogo.numerics.formats import round_to
from numeric_cases import spec

TEST = spec(
    "layernorm_fw",
    (16, 64),
    numerics={"input": "fp32", "output": "bf16"},
    inputs={"x": {"regime": "normal", "mean": 0, "std": 1}},
)
Arrays = Mapping[str, NDArray[Any]]


def outputs(given: Arrays, *, factor: float = 1.0, first: float = 0.0) -> Arrays:
    """Return LayerNorm in float64, rounded to bf16; y times a factor, `first` added to one."""
    x = given["x"].astype(np.float64)
    mean = x.mean(1, keepdims=True)
    rstd = 1 / np.sqrt(x.var(1, keepdims=True) + TEST.epsilon)
    y = ((x - mean) * rstd * given["gamma"] + given["beta"]) * factor
    y[0, 0] += first
    return {
        name: round_to(values, "bf16")
        for name, values in {"y": y, "mean": mean[:, 0], "rstd": rstd[:, 0]}.items()
    }


def bench(*kernels: Kernel) -> Bench:
    given = quantise(TEST, generate(TEST, 0))
    return Bench("these", "small", TEST, 0, given, kernels, "fp32")


def by_name(*kernels: Kernel) -> dict[str, Result]:
    return {result.kernel: result for result in results(bench(*kernels))}


RIGHT = Kernel("right", True, outputs)


@pytest.mark.parametrize(
    ("error", "changed", "showing"),
    [
        (1.0, 100, Showing.faint),
        (1.25, 100, Showing.faint),
        (1.26, 3, Showing.plain),
        (9.0, 2, Showing.hidden),
    ],
)
def test_a_fault_is_plain_beyond_the_worst_right_kernel_and_hidden_below_three_elements(
    error: float, changed: int, showing: Showing
) -> None:
    assert shows({"y": error, "mean": 0.5}, {"y": 1.0, "mean": 0.5}, changed) is showing


def test_mutants_are_compared_with_the_right_kernels_of_the_same_inputs() -> None:
    large = Kernel("large", False, lambda given: outputs(given, factor=1.1), outputs)
    small = Kernel("small", False, lambda given: outputs(given, factor=1.0002), outputs)
    one = Kernel("one", False, lambda given: outputs(given, first=1.0), outputs)
    same = Kernel("same", False, outputs, outputs)
    renamed = Kernel("no-op", False, lambda given: outputs(given, factor=1.1), outputs, no_op=True)
    by_kernel = by_name(large, small, one, same, renamed, RIGHT)  # the order must not matter
    assert {name: result.showing for name, result in by_kernel.items()} == {
        "right": None,
        "large": Showing.plain,
        "small": Showing.faint,
        "one": Showing.hidden,  # a single element
        "same": Showing.hidden,
        "no-op": Showing.hidden,
    }


def test_a_right_kernel_that_overflows_is_not_counted_and_excuses_no_mutant() -> None:
    def overflowing(given: Arrays) -> Arrays:
        values = dict(outputs(given))
        values["y"] = np.full_like(values["y"], np.inf)
        return values

    large = Kernel("large", False, lambda given: outputs(given, factor=1.1), outputs)
    by_kernel = by_name(Kernel("overflowing", True, overflowing), RIGHT, large)
    assert by_kernel["overflowing"].showing is Showing.overflow
    assert by_kernel["large"].showing is Showing.plain
    assert counted(by_kernel.values())["kernelbench"].right.of == 1


def test_every_judge_counts_the_same_runs() -> None:
    large = Kernel("large", False, lambda given: outputs(given, factor=1.1), outputs)
    small = Kernel("small", False, lambda given: outputs(given, factor=1.0002), outputs)
    counts = counted(by_name(RIGHT, large, small).values())
    answers = {
        judge: [(count.rejected, count.of) for count in (c.plain, c.faint, c.right)]
        for judge, c in counts.items()
    }
    assert answers[UNEXPLAINED][0] == answers[SUSPECT][0] == (1, 1)
    assert answers[UNEXPLAINED][2] == (0, 1)
    assert answers["bit-equal"] == [(1, 1), (1, 1), (0, 1)]
    assert answers["kernelbench"] == [(1, 1), (0, 1), (0, 1)]
    assert answers["pcc-.99"] == [(0, 1), (0, 1), (0, 1)]  # PCC doesn't see a factor
    assert answers["moreh-backward"] == [(0, 0), (0, 0), (0, 0)]


def test_a_suspect_is_rejected_by_the_wider_verdict_only() -> None:
    (result,) = results(bench(RIGHT))
    for explanation, strict, wide in (
        ("explained", True, True),
        ("suspect", True, False),
        ("unexplained", False, False),
        ("no_information", True, True),
    ):
        result.row["explanation"] = explanation
        assert (passes(UNEXPLAINED, result), passes(SUSPECT, result)) == (strict, wide)


def test_the_command_prints_every_judge_what_it_left_out_and_writes_the_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(families, "EMULATED", (("layernorm_fw", (8, 64), {}),))
    file = tmp_path / "counts.json"
    assert main(["--family", "emulated", "--json", str(file)]) == 0
    text = capsys.readouterr().out
    assert "outputs in bf16" in text
    assert "left out:" in text
    assert re.search(r"^\d{4}-\d\d-\d\d, Python .*numpy \d", text, re.MULTILINE)
    counts = json.loads(file.read_text())["formats"]["bf16"]
    assert counts[UNEXPLAINED]["false_alarms"]["count"] == 0
    plain = counts["bit-equal"]["plain"]
    assert 0 < plain["count"] == plain["of"]
    assert counts["moreh-backward"]["plain"]["of"] == 0
    assert re.search(rf"^bit-equal +{plain['count']} of {plain['of']}, 100.0 %", text, re.MULTILINE)
    assert "moreh-backward" not in text


def test_a_format_that_no_test_has_runs_nothing() -> None:
    assert main(["--family", "emulated", "--format", "fp16", "--seeds", "0"]) == 2


def test_a_stranger_s_mutant_runs_on_as_many_tests_as_asked_with_its_clean_twin() -> None:
    number = {
        tests: Counter(
            (bench_.test.kernel, kernel.name)
            for bench_ in families.strangers(1, tests)
            for kernel in bench_.kernels
            if not kernel.right and kernel.twin is not None
        )
        for tests in (1, 2)
    }
    assert set(number[1].values()) == {1}
    assert set(number[2].values()) == {2}
    assert set(number[1]) == set(number[2]) == set(WRONGS)

"""`gonogo.compare` without a worker: it judges at once, and refuses what it can't judge."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import gonogo
from gonogo import emulator
from gonogo.errors import FieldError, JobError
from gonogo.judging import comparison
from gonogo.judging.inputs import generate, quantise
from gonogo.judging.judging import OutputJudgement, SeedJudgement
from gonogo.public import handover
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import Explanation, Verdict
from pytest_plugin import in_this_process

ROOT = Path(__file__).parents[4]
FIELDS: dict[str, Any] = {
    "kernel": "layernorm_bw",
    "tolerance": {"rtol": 1e-3, "atol": 0.5},
    "arithmetic": "tt-train",
}
TEST = TestSpec.parse({"kernel": "layernorm_bw", "shape": [1, 32, 1024]})


def arrays(build: str) -> dict[str, NDArray[Any]]:
    """Return the inputs and dx of an emulated build, in the test's shapes."""
    given = quantise(TEST, generate(TEST, 0))
    outputs = emulator.run(TEST, given, build)
    return {
        name: np.asarray(array).reshape(TEST.shape_of(name))
        for name, array in {**given, "dx": outputs["dx"]}.items()
    }


def copy_plug_in(folder: Path) -> None:
    """Copy the few files that the pytest executor takes to an interpreter without gonogo."""
    text = (ROOT / "workers/gonogo_workers/executors/child/pytest_executor.py").read_text()
    listed = text[text.index("PLUGIN_FILES = (") + len("PLUGIN_FILES = ") :]
    for name in ast.literal_eval(listed[: listed.index("\n)\n") + 2]):
        copy = folder / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text((ROOT / name).read_text())


@pytest.fixture(scope="module")
def right() -> dict[str, NDArray[Any]]:
    return arrays("correct")


@pytest.fixture(scope="module")
def wrong() -> dict[str, NDArray[Any]]:
    return arrays("double-subtract")


def test_a_right_kernel_gives_its_judgement(right: dict[str, NDArray[Any]]) -> None:
    judgement = gonogo.compare(**FIELDS, **right)
    assert judgement.verdict is Verdict.pass_
    assert set(judgement.outputs) == {"dx"}


def test_a_green_that_rounding_can_t_explain_fails_with_numbers_and_the_term(
    wrong: dict[str, NDArray[Any]],
) -> None:
    with pytest.raises(AssertionError) as raised:
        gonogo.compare(**FIELDS, **wrong, name="after the fix")
    first, numbers, diagnosis = str(raised.value).split("\n")
    assert first.startswith(
        "after the fix: layernorm_bw [1, 32, 1024]: Hollow pass (arithmetic: tt-train"
    )
    assert "Green and wrong" in first
    assert numbers.startswith("  dx: Hollow pass, unexplained; rounding_ratio ")
    assert diagnosis.startswith("  dx: s1 is subtracted twice in P_centered: explains 99.8 %")


def lines_of(verdict: Verdict, explanation: Explanation, **statistics: Any) -> list[str]:
    """Return the lines of a message about y, but for the first; dgamma passes."""
    outputs = {
        "y": OutputJudgement(verdict, explanation, {"count": 9, **statistics}),
        "dgamma": OutputJudgement(Verdict.pass_, Explanation.explained, {"max_abs": 1.0}),
    }
    judged = SeedJudgement(verdict, explanation, outputs, "blocked sums")
    first, *lines = comparison.message("layernorm_bw [4]", judged).split("\n")
    assert first.startswith(f"layernorm_bw [4]: {verdict.label} (arithmetic: blocked sums). ")
    return lines


WRONG = Verdict.pass_by_tolerance, Explanation.unexplained


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (lines_of(*WRONG, rounding_ratio=5.0, tolerance_ratio=None, reason="no", places="Row 3."),
         ["  y: Hollow pass, unexplained; rounding_ratio 5", "  y: no; Row 3"]),
        (lines_of(*WRONG, max_abs=0.25, fault="s1 is missing", reason="no", places="Row 3."),
         ["  y: Hollow pass, unexplained; max_abs 0.25", "  y: s1 is missing"]),
        (lines_of(Verdict.suspect, Explanation.suspect, max_abs=2.0, fault="s1 is missing"),
         ["  y: Suspect, suspect; max_abs 2", "  y: more seeds decide; so far s1 is missing"]),
        (
         lines_of(Verdict.fail_by_tolerance, Explanation.explained, max_abs=2.0,
         advice="Take atol 3.", detection_limits=["a missing beta"]),
         ["  y: False alarm, explained; max_abs 2", "  y: Take atol 3.",
         "  y: couldn't have seen: a missing beta"]),
    ],
    ids=["places", "fault", "suspect", "false alarm"],
)  # fmt: skip
def test_a_message_has_a_line_for_each_thing_that_is_known_of_an_output(
    lines: list[str], expected: list[str]
) -> None:
    assert lines == expected


@pytest.mark.parametrize("verdict", [Verdict.suspect, Verdict.inconclusive])
def test_what_is_neither_right_nor_wrong_fails_no_test(
    right: dict[str, NDArray[Any]], verdict: Verdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    explanation = Explanation(verdict.value)
    dx = OutputJudgement(verdict, explanation, {"reason": "9 deviations"})
    answer = SeedJudgement(verdict, explanation, {"dx": dx}, "blocked sums")
    monkeypatch.setattr(comparison.TestCase, "judge", lambda case: answer)
    with pytest.warns(handover.ComparisonWarning, match="9 deviations"):
        assert gonogo.compare(**FIELDS, **right) is answer


def test_the_mode_may_warn_or_be_off(
    wrong: dict[str, NDArray[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handover, "_mode", "warn")
    with pytest.warns(handover.ComparisonWarning, match="Hollow pass") as warned:
        assert gonogo.compare(**FIELDS, **wrong).verdict is Verdict.pass_by_tolerance
    assert warned[0].filename == __file__
    monkeypatch.setattr(handover, "_mode", "off")
    assert gonogo.compare(**FIELDS, **wrong) is None
    with pytest.raises(ValueError, match="fail, warn, off"):
        handover.set_mode("maybe")


def test_what_can_t_be_judged_is_refused_by_name(right: dict[str, NDArray[Any]]) -> None:
    with pytest.raises(FieldError, match=r"x\[0, 0\]: isn't a bf16 value"):
        gonogo.compare(**FIELDS, **{**right, "x": np.full(TEST.shape, 0.1)})
    with pytest.raises(FieldError, match="gamma: has a wrong shape"):
        gonogo.compare(**FIELDS, **{**right, "gamma": np.ones(5)})
    with pytest.raises(FieldError, match=r"y: isn't a tensor of layernorm_bw"):
        gonogo.compare(**FIELDS, **right, y=right["dx"])
    with pytest.raises(FieldError, match="arithmetic"):
        gonogo.compare(**{**FIELDS, "arithmetic": "guess"}, **right)
    with pytest.raises(JobError, match="no output to judge"):
        gonogo.compare(**FIELDS, **{name: array for name, array in right.items() if name != "dx"})
    with pytest.raises(JobError, match="dy missing"):
        gonogo.compare(**FIELDS, **{name: array for name, array in right.items() if name != "dy"})
    with pytest.raises(TypeError, match="x must be an array of real numbers"):
        gonogo.compare(**FIELDS, **{**right, "x": np.array(["a"])})
    with pytest.raises(TypeError, match="x is missing"):
        gonogo.compare("layernorm_bw", dx=right["dx"])


def test_raw_inputs_are_rounded_for_the_kernel(right: dict[str, NDArray[Any]]) -> None:
    raw = {name: array.reshape(TEST.shape_of(name)) for name, array in generate(TEST, 0).items()}
    given = {name: array for name, array in right.items() if name not in raw}
    assert (
        gonogo.compare(**FIELDS, **given, raw=raw, numerics={"statistics": "given"}).verdict
        is Verdict.pass_
    )


def test_tensors_of_torch_are_read_without_torch(right: dict[str, NDArray[Any]]) -> None:
    class Tensor:
        """A stand-in for torch's tensor, with the methods that lead to a NumPy array."""

        def __init__(self, array: NDArray[Any]) -> None:
            self.array = array

        def detach(self) -> Tensor:
            return self

        cpu = float = detach

        def numpy(self) -> NDArray[Any]:
            return self.array

    assert (
        gonogo.compare(**FIELDS, **{name: Tensor(array) for name, array in right.items()}).verdict
        is Verdict.pass_
    )


def test_importing_gonogo_loads_neither_numpy_nor_the_numerics() -> None:
    code = (
        "import gonogo, gonogo.pytest_plugin.plugin, sys; "
        "assert not {'numpy', 'scipy', 'gonogo.judging.judging'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_without_the_numerics_a_comparison_is_an_error_and_no_silent_pass(tmp_path: Path) -> None:
    copy_plug_in(tmp_path)
    code = "import gonogo; gonogo.compare('layernorm_bw', x=[[1.0]], dx=[[0.0]])"
    completed = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
    )
    assert completed.returncode == 1
    assert "RuntimeError: gonogo.compare can't judge here" in completed.stderr


@pytest.mark.parametrize(
    ("mode", "line"), [("fail", "1 failed, 1 passed"), ("warn", "1 passed, 1 warning, 1 hollow")]
)
def test_the_plug_in_judges_in_anybody_s_pytest(
    tmp_path: Path,
    right: dict[str, NDArray[Any]],
    wrong: dict[str, NDArray[Any]],
    mode: str,
    line: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    np.savez(tmp_path / "right.npz", **right)
    np.savez(tmp_path / "wrong.npz", **wrong)
    (tmp_path / "test_kernel.py").write_text(
        dedent(f"""
        import numpy as np, pytest
        @pytest.mark.parametrize("name", ["right", "wrong"])
        def test_kernel(gonogo, name):
            gonogo.compare(**{FIELDS!r}, **np.load(name + ".npz"))
        """)
    )
    output_lines = in_this_process(monkeypatch)(
        tmp_path, f"--gonogo-compare={mode}", "--tb=line", status=int(mode == "fail")
    )
    assert line in output_lines[-1], output_lines
    assert "Hollow pass" in "\n".join(output_lines)
    assert handover._mode == "fail", "the option holds for that run only"

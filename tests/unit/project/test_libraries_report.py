"""Judging, intervals, the acceptance table and the cache of `benchmarks.libraries`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gonogo
from benchmarks.libraries import acceptance, environments, judge, mutants, report, runs, trials
from benchmarks.libraries.arithmetics import (
    EVERYTHING,
    NORMALIZED,
    NOTHING,
    SCALED,
    Stored,
    expected,
    is_right_name,
)
from benchmarks.libraries.cases import Case
from benchmarks.libraries.environments import Environment
from benchmarks.libraries.intervals import Share, clopper_pearson
from benchmarks.libraries.judge import Judgment
from benchmarks.libraries.runs import Run
from benchmarks.libraries.trials import Outcome, RightRun, SeedTask, Trial

CASE = Case("layernorm_fw", (4, 64), "normal", "fp32")


def judgment(explanation: str, verdict: str = "pass", words: str = "") -> Judgment:
    answer = gonogo.Judgment(verdict, explanation, "fp32-inside", words=words)
    return Judgment(answer, within=not verdict.startswith("fail"))


def trial(
    explanation: str,
    verdict: str = "pass",
    edit: str | None = None,
    excess: float = 1.0,
    changed: int = 100,
    is_no_op: bool = False,
    case: Case = CASE,
    words: str = "",
) -> Trial:
    mutant = None if edit is None else mutants.mutant_named(f"fp32: {edit}", case.kind)
    run = Run("torch" if edit is None else "sources", "kernel", case, 0)
    outcome = Outcome(
        run,
        {"y": excess},
        {"y": 1.0},
        changed,
        is_no_op,
        judgment(explanation, verdict, words),
    )
    return Trial(run.library, run.kernel, case, mutant, [outcome])


def row(title: str) -> acceptance.Row:
    return next(row for row in acceptance.ROWS if row.title.startswith(title))


@pytest.mark.parametrize(
    ("count", "total", "low", "high"),
    [(0, 10, 0.0, 0.3085), (10, 10, 0.6915, 1.0), (5, 10, 0.1871, 0.8129), (1, 400, 6e-5, 0.0138)],
)
def test_intervals_are_clopper_and_pearsons(
    count: int, total: int, low: float, high: float
) -> None:
    assert clopper_pearson(count, total) == pytest.approx((low, high), abs=1e-4)


def test_an_interval_covers_the_share_at_its_level() -> None:
    """At each bound, a count at least as extreme has a probability of 2.5 %."""
    from scipy.stats import binom

    low, high = clopper_pearson(7, 50)
    assert binom.sf(6, 50, low) == pytest.approx(0.025, abs=1e-9)
    assert binom.cdf(7, 50, high) == pytest.approx(0.025, abs=1e-9)


def test_a_count_outside_its_total_is_refused() -> None:
    with pytest.raises(ValueError, match="count 3 of 2"):
        clopper_pearson(3, 2)


def test_no_case_is_no_share() -> None:
    assert Share(0, 0).text() == "no case"
    assert Share(0, 0).value is None
    assert row("right kernels").holds(Share(0, 0), "fp32") is None


def test_a_right_kernel_that_ends_suspect_is_a_false_alarm() -> None:
    rows = [trial("explained"), trial("suspect"), trial("unexplained", "pass_by_tolerance")]
    share = row("right kernels").count(rows)
    assert (share.count, share.total) == (2, 3)
    assert acceptance.false_alarms(rows) == rows[1:]
    assert row("right kernels").holds(share, "fp32") is False


def test_a_clear_mutant_is_one_beyond_the_worst_right_kernel() -> None:
    flagged = trial("unexplained", "fail", "gamma-missing", excess=2.0)
    missed = trial("explained", edit="beta-missing", excess=1.3)
    faint = trial("explained", edit="beta-missing", excess=1.2)
    few = trial("explained", edit="beta-missing", excess=1.2, changed=2)
    no_op = trial("explained", edit="mean-in-bf16", excess=1.0, is_no_op=True)
    rows = [flagged, missed, faint, few, no_op]
    assert [acceptance.is_clear(entry) for entry in rows] == [True, True, False, False, False]
    assert [acceptance.is_faint(entry) for entry in rows] == [False, False, True, False, False]
    assert acceptance.misses(rows) == [missed, faint]
    share = row("wrong, fp32-inside").count(rows)
    assert (share.count, share.total) == (1, 2)


@pytest.mark.parametrize(
    ("edit", "size", "limits", "is_listed"),
    [
        ("epsilon-missing", 1e-7, ["epsilon", "a common factor below 0.00001 %"], True),
        ("epsilon-wrong", 1e-7, ["epsilon (these inputs don't use it)"], True),
        ("epsilon-wrong", 2e-7, ["a common factor below 0.00003 %"], True),
        ("epsilon-wrong", 4e-7, ["a common factor below 0.00003 %"], False),
        ("rstd-off-0.1%", 1e-3, ["a common factor below 0.01 %", "a step of rstd"], True),
        ("beta-missing", 1e-9, ["a common factor below 0.00003 %"], False),
        ("beta-missing", 1e-9, [], False),
    ],
)
def test_a_miss_is_honest_where_the_verdict_lists_the_fault(
    edit: str, size: float, limits: list[str], is_listed: bool
) -> None:
    missed = trial("explained", edit=edit)
    numbers = {"verdict": "pass", "explanation": "explained", "detection_limits": limits}
    answer = gonogo.Judgment("pass", "explained", "fp32-inside", outputs={"y": numbers})
    missed.outcomes = [
        replace(missed.outcomes[0], judgment=Judgment(answer, within=True), sizes={"y": size})
    ]
    share = row("faint, fp32-inside: flagged, or its fault").count([missed])
    assert share == Share(int(is_listed), 1)


def test_the_size_of_an_edit_is_the_largest_change_of_a_row() -> None:
    mutant = mutants.mutant_named("fp32: y-off-0.1%", CASE.kind)
    assert mutants.sizes(mutant, CASE, 0) == {"y": pytest.approx(1e-3)}


def test_an_acquitted_wrong_kernel_counts() -> None:
    rows = [
        trial("explained", "fail_by_tolerance", "gamma-missing", excess=9.0),
        trial("unexplained", "fail", "beta-missing", excess=9.0),
        trial("unexplained", "pass_by_tolerance", "beta-missing", excess=9.0),
        trial("explained", "fail_by_tolerance"),
    ]
    share = row("red wrong seeds").count(rows)
    assert (share.count, share.total) == (1, 2)
    assert row("red wrong seeds").holds(share, "fp32") is False
    assert row("red right seeds").count(rows) == Share(1, 1)


def test_a_diagnosis_is_right_if_it_leads_with_the_term_or_one_that_acts_alike() -> None:
    head = "layernorm_fw [4, 64]: Fail. Red and wrong.\n  y: Fail, unexplained; chi 9\n"
    for words, edit, expected_answer in (
        ("  y: the mean leaves out the last 32 columns", "mean-without-last-tile", True),
        ("  y: gamma is missing", "mean-without-last-tile", False),
        ("  y: a common factor of 1.004", "rstd-off-0.4%", True),
        ("  y: row 2 holds the values of row 1", "stale-row", True),
        ("  y: couldn't have seen: a common factor below 1 %", "y-off-0.1%", None),
        ("  y scatters 9 times more than rounding, in no pattern of row tiles", "stale-row", None),
        ("  precision, not a term", "gamma-missing", False),
        ("  cannot tell what is wrong", "gamma-missing", None),
    ):
        chosen = mutants.mutant_named(f"fp32: {edit}", "layernorm_fw").edit
        answer = judge.names_term(head + words, chosen.term, chosen.outputs)
        assert answer is expected_answer, words


def test_a_diagnosis_of_another_output_does_not_count() -> None:
    words = "layernorm_bw: Fail\n  dx: s1 is missing\n  dgamma: a common factor of 1.001"
    assert judge.names_term(words, "scale", ("dgamma",))
    assert not judge.names_term(words, "scale", ("dx",))


def test_names_of_arithmetics() -> None:
    assert expected("torch", "upcast", "layernorm_fw", "bf16") == NOTHING
    assert expected("mlx", "fast.rms_norm", "rmsnorm_fw", "bf16") == NORMALIZED
    assert expected("jax", "gemma (jit)", "rmsnorm_fw", "bf16") == NORMALIZED
    assert expected("mlx", "unknown", "rmsnorm_fw", "bf16") is None
    assert expected("mlx", "unknown", "rmsnorm_fw", "fp32") == NOTHING


@pytest.mark.parametrize(
    ("name", "stored", "is_right"),
    [
        ("fp32-inside, running sums", NOTHING, True),
        ("fp32-inside; fp32-inside, running sums", NOTHING, True),
        ("fp32-inside; unknown", NOTHING, False),
        ("generic", NOTHING, False),
        ("bf16: x^ stored", NOTHING, False),
        ("fp32-inside", SCALED, False),
        ("16-bit: x^, gamma x^ stored", SCALED, True),
        ("fp16: gamma x^, x^ stored, running sums", SCALED, True),
        ("bf16: x^ stored", SCALED, False),
        ("bf16: mean, x^, gamma x^ stored", SCALED, False),
        ("bf16: x^ stored", NORMALIZED, True),
        ("bf16: x^, gamma x^ stored", NORMALIZED, True),
        ("bf16: mean, x - mean, square, rstd, x^, gamma x^ stored", EVERYTHING, True),
        ("bf16: x - mean, square, rstd, x^, gamma x^ stored", EVERYTHING, False),
    ],
)
def test_a_name_lists_what_is_stored_and_nothing_else(
    name: str, stored: Stored, is_right: bool
) -> None:
    assert is_right_name(name, stored) is is_right


def test_the_product_judges_a_right_source_and_a_wrong_one() -> None:
    source = mutants.SOURCES[0]
    right = judge.judge_outputs(CASE, 0, mutants.run(source, CASE, 0))
    wrong = judge.judge_outputs(CASE, 0, mutants.run(source, CASE, 0, "rstd-missing"))
    assert right.explanation == "explained"
    assert wrong.explanation == "unexplained"
    assert not wrong.within
    assert judge.pooled([right, wrong]) == "unexplained"
    assert judge.pooled([right]) == "explained"


def test_a_seed_compares_a_mutant_with_the_worst_right_kernel(tmp_path: Path) -> None:
    source = mutants.SOURCES[0]
    outputs = mutants.run(source, CASE, 0)
    outputs["y"] = outputs["y"] + np.float32(2.0**-10)
    path = tmp_path / "right.npz"
    np.savez(path, **outputs)
    right = RightRun(Run("torch", "F.layer_norm", CASE, 0), path, is_judged=False)
    mutant = mutants.mutant_named("fp32: y-off-0.1%", CASE.kind)
    [library, wrong] = trials.judge_seed(SeedTask(CASE, 0, (right,), (mutant,)))
    assert library.judgment is None
    assert library.errors["y"] == pytest.approx(2.0**-10, rel=1e-3)
    assert wrong.worst["y"] == library.errors["y"]
    assert 1 < wrong.excess < 5
    assert wrong.changed > 200
    assert not wrong.is_no_op


def test_an_error_of_the_judge_is_a_problem_that_the_report_names(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*words: object) -> Judgment:
        raise ZeroDivisionError("no rows")

    monkeypatch.setattr(trials, "judge_outputs", fail)
    mutant = mutants.mutant_named("fp32: rstd-missing", CASE.kind)
    [outcome] = trials.judge_seed(SeedTask(CASE, 0, (), (mutant,)))
    assert trials.is_judge_error(outcome)
    broken = Trial("sources", mutant.name, CASE, mutant, [outcome])
    assert not report.print_report([broken], {}, [], None)
    printed = capsys.readouterr().out
    assert "seeds on which the judge raised an error: 1\n" in printed
    assert (
        f"ZeroDivisionError: no rows; python -m benchmarks.libraries --replay '{outcome.run.name}"
        in (printed)
    )


def test_the_report_names_misses_and_false_alarms_with_their_commands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [
        trial("explained"),
        trial("unexplained", "pass_by_tolerance"),
        trial("explained", edit="beta-missing", excess=9.0),
        trial("unexplained", "fail", "gamma-missing", excess=9.0),
    ]
    assert not report.print_report(rows, {"torch": {"torch": "2"}}, ["mlx: no wheel"], None)
    printed = capsys.readouterr().out
    assert "right kernels that are flagged: 1\n" in printed
    assert "mutants that aren't flagged: 1\n" in printed
    assert printed.count("--replay 'torch:kernel:layernorm_fw-4x64-normal-fp32:0'") == 1
    assert printed.count("--replay 'sources:kernel:layernorm_fw-4x64-normal-fp32:0'") == 1
    assert "left out: mlx: no wheel" in printed
    assert "gamma-missing │ no term    │ 1" in printed
    assert "torch: torch 2" in printed
    assert report.print_report([trial("explained")], {}, [], None)
    assert "0 of 1, 0.00 % [0.00-97.50]" in capsys.readouterr().out


def test_outputs_of_another_shape_or_format_are_a_problem(tmp_path: Path) -> None:
    case = Case("layernorm_fw", (4, 64), "normal", "fp16")
    for values, message in (
        (mutants.reference(case, 0)["y"][:2], "shape"),
        (mutants.reference(case, 0)["y"], "aren't fp16"),
    ):
        path = tmp_path / "outputs.npz"
        np.savez(path, y=values.astype(np.float32))
        right = RightRun(Run("torch", "F.layer_norm", case, 0), path)
        [outcome] = trials.judge_seed(SeedTask(case, 0, (right,), ()))
        assert outcome.problem is not None
        assert message in outcome.problem
        assert outcome.judgment is None


PROGRAM = """
import json, sys
import numpy as np
from protocol import Kernel, serve

def copy(inputs, run):
    return {"y": inputs["x"] * 2}

def failing(inputs, run):
    raise ValueError("no such kernel here")

def dying(inputs, run):
    import os
    os._exit(3)

serve(
    [Kernel("copy", "layernorm_fw", copy, ("fp32",)),
     Kernel("failing", "layernorm_fw", failing, ("fp32",), epsilon=1e-8),
     Kernel("dying", "layernorm_fw", dying, ("fp32",))],
    {"copy": "1"},
)
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    """Return an installed library whose interpreter is this one."""
    import sys

    programs = tmp_path / "programs"
    programs.mkdir()
    source = environments.PROGRAMS / "protocol.py"
    (programs / "protocol.py").write_text(source.read_text("utf-8"), "utf-8")
    (programs / "copy_program.py").write_text(PROGRAM, "utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(environments, "PROGRAMS", programs)
    monkeypatch.setattr(runs, "PROGRAMS", programs)
    environment = Environment("copy", ("copy==1",), ("copy",))
    environment.python.parent.mkdir(parents=True)
    # a link would leave the packages behind: Python looks for them beside the link
    environment.python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', "utf-8")
    environment.python.chmod(0o755)
    environment.complete()
    monkeypatch.setattr(runs, "environment_of", lambda name: environment)
    runs.listing.cache_clear()
    runs._program_digest.cache_clear()
    return environment


def test_a_program_lists_its_kernels(library: Environment) -> None:
    row = runs.listing("copy")
    assert row.versions == {"copy": "1"}
    assert [kernel.name for kernel in row.kernels] == ["copy", "failing", "dying"]
    assert row.kernels[1].case_of(CASE).epsilon == 1e-8
    assert row.kernels[0].case_of(CASE).epsilon == 1e-5
    assert not row.kernels[0].runs_on(Case("layernorm_fw", (4, 64), "normal", "bf16"))


def test_a_failing_or_dying_kernel_is_its_own_problem_and_outputs_are_cached(
    library: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("dying", "copy", "failing", "copy")
    every = [Run("copy", name, CASE, seed) for seed, name in enumerate(names)]
    results = runs.produce(every)
    assert "the process ended" in str(results[every[0]])
    assert results[every[2]] == "ValueError: no such kernel here"
    path = results[every[1]]
    assert isinstance(path, Path)
    x = runs.inputs(CASE, 1)["x"]
    np.testing.assert_array_equal(runs.load(path)["y"], 2 * x)
    monkeypatch.setattr(runs, "_child", lambda *words: pytest.fail("it ran again"))
    assert runs.produce([every[1], every[3]]) == {
        every[1]: path,
        every[3]: results[every[3]],
    }


def test_another_source_or_seed_is_another_place_in_the_cache(library: Environment) -> None:
    run = Run("copy", "copy", CASE, 0)
    [path] = runs.produce([run]).values()
    assert runs.cached(Run("copy", "copy", CASE, 1)) is None
    library.program.write_text(PROGRAM.replace("* 2", "* 3"), "utf-8")
    runs._program_digest.cache_clear()
    assert runs.cached(run) is None
    assert isinstance(path, Path)


def test_an_environment_with_other_versions_is_not_installed(library: Environment) -> None:
    assert library.is_installed
    assert not Environment("copy", ("copy==1", "numpy==2"), ("copy",)).is_installed


def test_a_library_whose_command_is_missing_is_left_out() -> None:
    environment = Environment("copy", ("copy==1",), ("copy",), ("no-such-command",))
    assert environments.install(environment) == (
        "it calls no-such-command, which isn't on PATH: apt-get install -y no-such-command"
    )


def test_names_of_runs() -> None:
    run = Run("sources", "fp32: rstd-missing", CASE, 3)
    assert runs.run_named(run.name) == run
    with pytest.raises(ValueError, match="needs LIBRARY:KERNEL:CASE:SEED"):
        runs.run_named("torch:F.layer_norm")


@pytest.fixture
def gpu_library(library: Environment, monkeypatch: pytest.MonkeyPatch) -> Environment:
    """Return a library that runs on a GPU, on a machine that has one."""
    environment = Environment("copy", ("copy==1",), ("copy",), needs_gpu=True)
    monkeypatch.setattr(runs, "environment_of", lambda name: environment)
    monkeypatch.setattr(environments, "gpu", lambda: "a GPU, 1.0")
    monkeypatch.setattr(runs, "gpu", lambda: "a GPU, 1.0")
    return environment


def test_outputs_of_a_gpu_are_judged_on_a_machine_without_one(
    gpu_library: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run("copy", "copy", CASE, 0)
    listed = runs.listing("copy")
    assert listed.versions == {"copy": "1", "GPU": "a GPU, 1.0"}
    [path] = runs.produce([run]).values()
    assert isinstance(path, Path)
    monkeypatch.setattr(environments, "gpu", lambda: None)
    runs.listing.cache_clear()
    runs._program_digest.cache_clear()
    assert runs.listing("copy") == listed
    other = Run("copy", "copy", CASE, 1)
    assert runs.produce([run, other]) == {
        run: path,
        other: "not recorded, and it needs an NVIDIA GPU, and nvidia-smi names none here",
    }


def test_a_library_for_a_gpu_is_left_out_where_there_is_none(
    gpu_library: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "gpu", lambda: None)
    assert "needs an NVIDIA GPU" in str(environments.install(gpu_library))
    with pytest.raises(RuntimeError, match="needs an NVIDIA GPU"):
        runs.listing("copy")


def test_an_interpreter_with_a_gpu_s_libraries_can_be_named(
    gpu_library: Environment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gpu_library.stamp.unlink()
    assert gpu_library.absence == "it isn't installed; run `make libraries`"
    monkeypatch.setenv("LIBRARIES_GPU_PYTHON", str(gpu_library.python))
    assert gpu_library.absence is None
    monkeypatch.setenv("LIBRARIES_GPU_PYTHON", str(tmp_path / "none"))
    assert not gpu_library.is_installed

"""Kernels of libraries run in their own interpreters, and their outputs are cached."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.libraries import environments, runs
from benchmarks.libraries.cases import Case
from benchmarks.libraries.environments import Environment
from benchmarks.libraries.runs import Run

CASE = Case("layernorm_fw", (4, 64), "normal", "fp32")

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

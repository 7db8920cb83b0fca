"""The builds of the emulator.

Each wrong one changes the outputs that it names and no other, follows its float64 logic, and shows
only where it can.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo import emulator
from gonogo.emulator.builds import builds_of
from gonogo.emulator.edits import LAST_BLOCK, LAST_TWO
from gonogo.errors import FieldError
from gonogo.judging.inputs import generate, quantise
from gonogo.kernels import registry
from gonogo.spec.test_spec import TestSpec
from gonogo.workloads import exact_outputs
from patience import WAIT_S

Array = NDArray[np.float32]

KERNELS = ("layernorm_bw", "layernorm_fw")
ALL = (*KERNELS, "rmsnorm_fw", "rmsnorm_bw", "groupnorm_fw")
NUMERIC = [
    (kernel, name)
    for kernel in ALL
    for name in registry.KERNELS[kernel].listed_builds
    if not builds_of(kernel)[name].fate
]
NO_LOGIC = ("correct", "bf16-accumulate", "stale-register")
LOGIC = [(kernel, name) for kernel, name in NUMERIC if name not in NO_LOGIC]


def case(
    kernel: str, shape: tuple[int, ...] = (70, 330), **fields: Any
) -> tuple[TestSpec, dict[str, Array]]:
    """Return a test in which every fault can show, and its inputs.

    It has means away from zero, a large epsilon, a width that needs a mask, and its own statistics.
    """
    others: dict[str, Any] = {"numerics": {"statistics": "own"}} if kernel.endswith("_bw") else {}
    if kernel == "groupnorm_fw":  # rows of as many values
        others = {"parameters": {"num_groups": 2}}
        shape = (shape[0] // 2, 4, shape[1] // 2)
    others |= {"epsilon": 1e-2, "inputs": {"regime": "uniform", "low": -0.5, "high": 1.5}}
    test = TestSpec.parse({"kernel": kernel, "shape": list(shape), **others, **fields})
    return test, quantise(test, generate(test, 3))


def touched(test: TestSpec, given: dict[str, Array], build: str, **options: int) -> set[str]:
    """Return the outputs in which a build differs from the right one."""
    right, wrong = emulator.run(test, given, "correct"), emulator.run(test, given, build, **options)
    return {n for n in right if not np.array_equal(right[n], wrong[n], equal_nan=True)}


@pytest.mark.parametrize(("kernel", "build"), NUMERIC)
def test_a_wrong_build_touches_what_it_names_and_nothing_else(kernel: str, build: str) -> None:
    # N = 330 moves rstd by less than half an ulp of bf16
    test, given = case(kernel, (70, 9) if build == "unbiased-variance" else (70, 330))
    changed = touched(test, given, build, position=int(build == "stale-register"))
    known = builds_of(kernel)[build]
    named = set(known.outputs) if known.is_wrong else set()
    assert changed <= named
    assert bool(changed) == bool(named)


@pytest.mark.parametrize(("kernel", "build"), LOGIC)
def test_a_wrong_build_is_what_its_float64_logic_says(kernel: str, build: str) -> None:
    test, given = case(kernel)
    outputs, logic = emulator.run(test, given, build), emulator.ideal(test, given, build)
    for name in test.outputs:
        finite = np.isfinite(logic[name])
        assert np.array_equal(finite, np.isfinite(outputs[name]))
        scale = np.abs(logic[name][finite]).max()
        assert np.abs(outputs[name] - logic[name])[finite].max() <= 0.02 * scale, name
    golden, known = exact_outputs(test, given), builds_of(kernel)[build]
    other = {n for n in golden if not np.allclose(golden[n], logic[n], rtol=1e-9, atol=1e-12)}
    assert other == (set(known.outputs) if known.is_wrong else other)


@pytest.mark.parametrize("build", ["correct", "bf16-accumulate", "hang", "crash"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_build_without_a_fault_of_logic_is_the_reference(build: str, kernel: str) -> None:
    test, given = case(kernel)
    golden, logic = exact_outputs(test, given), emulator.ideal(test, given, build)
    assert all(np.allclose(golden[name], logic[name], 1e-12, 1e-14) for name in golden)


@pytest.mark.parametrize("features", [20, 33])
@pytest.mark.parametrize("build", ["last-two-tiles", "last-block-only"])
def test_faults_of_many_tiles_cannot_show_in_one_or_two(build: str, features: int) -> None:
    test, given = case("layernorm_bw", (40, features))
    assert not touched(test, given, build)
    assert np.allclose(emulator.ideal(test, given, build)["dx"], exact_outputs(test, given)["dx"])


@pytest.mark.parametrize(
    ("weights", "count", "summed"),
    [(LAST_BLOCK, 265, [264]), (LAST_TWO, 265, [263, 264]), (LAST_BLOCK, 6, [3, 4, 5])],
)
def test_the_last_block_of_265_tiles_is_one_tile_and_the_last_two_are_two(
    weights: Callable[[int], Array], count: int, summed: list[int]
) -> None:
    assert np.unique(np.flatnonzero(weights(32 * count)) // 32).tolist() == summed


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_row_that_fills_its_tiles_has_no_mask_to_miss(kernel: str) -> None:
    assert not touched(*case(kernel, (40, 96)), "mask-missing")


@pytest.mark.parametrize("build", ["wrong-epsilon", "unbiased-variance"])
def test_faults_of_the_statistics_cannot_show_where_they_are_given(build: str) -> None:
    assert not touched(*case("layernorm_bw", (40, 9), numerics={}, epsilon=1e-6), build)


def test_a_stale_register_depends_on_what_ran_before() -> None:
    test, given = case("layernorm_bw")
    assert not touched(test, given, "stale-register", position=0)
    assert touched(test, given, "stale-register", position=1) == {"dx"}
    after_itself = emulator.run(test, given, "stale-register", position=1)["dx"]
    emulator.run(test, {name: a + a for name, a in given.items()}, "correct")
    after_other = emulator.run(test, given, "stale-register", position=2)["dx"]
    assert not np.array_equal(after_itself, after_other)


def test_outliers_are_isolated_and_off_by_a_power_of_two() -> None:
    test, given = case("layernorm_bw")
    builds = ("correct", "power-of-two-outliers")
    right, wrong = (emulator.run(test, given, build)["dx"] for build in builds)
    off = right != wrong
    assert 1 <= off.sum() <= 4
    assert np.array_equal(wrong[off], 2 * right[off])


def test_the_nan_tile_is_one_tile() -> None:
    test, given = case("layernorm_bw")
    is_nan = np.isnan(emulator.run(test, given, "nan-tile")["dx"])
    assert is_nan[32:64, 160:192].all()
    assert is_nan.sum() == 32 * 32


@pytest.mark.parametrize("kernel", ALL)
def test_every_build_has_its_sentence(kernel: str) -> None:
    known = builds_of(kernel)
    for name in registry.KERNELS[kernel].listed_builds:
        assert known[name].name == name
        assert known[name].sentence.endswith(".")
    assert not known["correct"].outputs


def test_an_unknown_build_is_refused() -> None:
    with pytest.raises(FieldError, match="is no fault of layernorm_bw in this shape"):
        emulator.run(*case("layernorm_bw"), "no-such-build")


FATE = """
import numpy as np
from gonogo import emulator
from gonogo.judging.inputs import generate, quantise
from gonogo.spec.test_spec import TestSpec
test = TestSpec.parse({{"kernel": "{kernel}", "shape": [2, 8]}})
print("before", flush=True)
emulator.run(test, quantise(test, generate(test, 0)), "{build}")
print("after", flush=True)
"""


def fated(kernel: str, build: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", FATE.format(kernel=kernel, build=build)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_crash_kills_the_process(kernel: str) -> None:
    with fated(kernel, "crash") as child:
        assert child.communicate(timeout=WAIT_S) == ("before\n", None)
    assert child.returncode == -signal.SIGSEGV


def test_a_hang_lasts_until_it_is_killed() -> None:
    with fated("layernorm_bw", "hang") as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "before\n"
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(timeout=0.5)
        child.terminate()
        assert child.wait(timeout=WAIT_S) == -signal.SIGTERM
        assert child.stdout.read() == ""

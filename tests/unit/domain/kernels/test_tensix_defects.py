"""The named defects of the emulator.

Each changes the outputs that it names and no other, follows its float64 logic, and shows only where
it can.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo.judging.inputs import generate, quantise
from gonogo.kernels.layernorm import emulation
from gonogo.kernels.layernorm.emulation import DEFECTS
from gonogo.kernels.layernorm.reference import reference
from gonogo.kernels.normalization.emulation.logic import Tiles, summed_tiles
from gonogo.spec.test_spec import TestSpec
from patience import WAIT_S

Array = NDArray[np.float32]

KERNELS = ("layernorm_bw", "layernorm_fw")
NUMERIC = [name for name, defect in DEFECTS.items() if defect.logic.fate is None]
LOGIC = [name for name in NUMERIC if name not in ("correct", "bf16-accumulate", "stale-register")]
SHAPE = (70, 330)


def case(
    kernel: str, shape: tuple[int, ...] = SHAPE, **fields: Any
) -> tuple[TestSpec, dict[str, Array]]:
    """Return a test in which every defect can show, and its inputs.

    It has means away from zero, a large epsilon, a width that needs a mask, and its own statistics.
    """
    statistics = {"numerics": {"statistics": "own"}} if kernel == "layernorm_bw" else {}
    test = TestSpec.parse(
        {
            "kernel": kernel,
            "shape": list(shape),
            "epsilon": 1e-4,
            "inputs": {"regime": "uniform", "low": -0.5, "high": 1.5},
            **statistics,
            **fields,
        }
    )
    return test, quantise(test, generate(test, 3))


def touched(one: dict[str, Array], other: dict[str, Array]) -> set[str]:
    return {name for name in one if not np.array_equal(one[name], other[name], equal_nan=True)}


@pytest.mark.parametrize("build", NUMERIC)
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_defect_touches_the_outputs_that_it_names_and_no_other(kernel: str, build: str) -> None:
    test, given = case(kernel)
    if build == "unbiased-variance":  # N = 330 moves rstd by less than half an ulp of bf16
        test, given = case(kernel, (70, 9))
    position = 1 if build == "stale-register" else 0
    touched_outputs = touched(
        emulation.run(test, given, "correct"), emulation.run(test, given, build, position=position)
    )
    defect = DEFECTS[build]
    named = set(defect.outputs) & set(test.outputs) if kernel in defect.kernels else set()
    assert touched_outputs <= named
    assert bool(touched_outputs) == bool(named)


@pytest.mark.parametrize("build", LOGIC)
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_defect_is_what_its_float64_logic_says(kernel: str, build: str) -> None:
    test, given = case(kernel)
    outputs, logic = emulation.run(test, given, build), emulation.ideal(test, given, build)
    for name in test.outputs:
        finite = np.isfinite(logic[name])
        assert np.array_equal(finite, np.isfinite(outputs[name]))
        scale = np.abs(logic[name][finite]).max()
        assert np.abs(outputs[name] - logic[name])[finite].max() <= 0.02 * scale, name


@pytest.mark.parametrize("build", LOGIC)
def test_a_defect_of_logic_changes_the_float64_function_of_a_kernel_that_it_applies_to(
    build: str,
) -> None:
    for kernel in DEFECTS[build].kernels:
        test, given = case(kernel)
        golden, logic = reference(test, given), emulation.ideal(test, given, build)
        assert {
            name
            for name in golden
            if not np.allclose(golden[name], logic[name], rtol=1e-9, atol=1e-12)
        } == set(DEFECTS[build].outputs) & set(test.outputs)


@pytest.mark.parametrize("build", ["correct", "bf16-accumulate", "hang", "crash"])
def test_a_build_without_a_fault_of_logic_is_the_reference(build: str) -> None:
    for kernel in KERNELS:
        test, given = case(kernel)
        golden, logic = reference(test, given), emulation.ideal(test, given, build)
        assert all(np.array_equal(golden[name], logic[name]) for name in golden)


@pytest.mark.parametrize("features", [20, 33])
@pytest.mark.parametrize("build", ["last-two-tiles", "last-block-only"])
def test_faults_of_many_tiles_cannot_show_in_one_or_two(build: str, features: int) -> None:
    test, given = case("layernorm_bw", (40, features))
    assert not touched(emulation.run(test, given, "correct"), emulation.run(test, given, build))
    assert np.array_equal(
        emulation.ideal(test, given, build)["dx"],
        emulation.ideal(test, given, "last-two-tiles")["dx"],
    )
    assert np.allclose(emulation.ideal(test, given, build)["dx"], reference(test, given)["dx"])


@pytest.mark.parametrize(
    ("tiles", "count", "summed"),
    [("last-block", 265, [264]), ("last-two", 265, [263, 264]), ("last-block", 6, [3, 4, 5])],
)
def test_the_last_block_of_265_tiles_is_one_tile_and_the_last_two_are_two(
    tiles: Tiles, count: int, summed: list[int]
) -> None:
    assert np.flatnonzero(summed_tiles(tiles, count)).tolist() == summed


def test_a_row_that_fills_its_tiles_has_no_mask_to_miss() -> None:
    for kernel in KERNELS:
        test, given = case(kernel, (40, 96))
        assert not touched(
            emulation.run(test, given, "correct"), emulation.run(test, given, "mask-missing")
        )


def test_faults_of_the_statistics_cannot_show_where_they_are_given() -> None:
    test = TestSpec.parse({"kernel": "layernorm_bw", "shape": [40, 9]})
    given = quantise(test, generate(test, 0))
    for build in ("wrong-epsilon", "unbiased-variance"):
        assert not touched(emulation.run(test, given, "correct"), emulation.run(test, given, build))


def test_a_stale_register_depends_on_what_ran_before() -> None:
    test, given = case("layernorm_bw")
    clean = emulation.run(test, given, "correct")
    assert not touched(clean, emulation.run(test, given, "stale-register", position=0))
    after_itself = emulation.run(test, given, "stale-register", position=1)
    assert touched(clean, after_itself) == {"dx"}
    other = {name: a + a for name, a in given.items()}
    emulation.run(test, other, "correct")
    assert touched(after_itself, emulation.run(test, given, "stale-register", position=2)) == {"dx"}


def test_outliers_are_isolated_and_off_by_a_power_of_two() -> None:
    test, given = case("layernorm_bw")
    right, wrong = (
        emulation.run(test, given, "correct")["dx"],
        emulation.run(test, given, "power-of-two-outliers")["dx"],
    )
    off = right != wrong
    assert 1 <= off.sum() <= 4
    assert np.array_equal(wrong[off], 2 * right[off])


def test_the_nan_tile_is_one_tile() -> None:
    test, given = case("layernorm_bw")
    rows, columns = np.nonzero(np.isnan(emulation.run(test, given, "nan-tile")["dx"]))
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (32, 63, 160, 191)
    assert rows.size == 32 * 32


def test_every_build_has_its_sentence_and_an_unknown_one_is_refused() -> None:
    assert all(
        defect.name == name and defect.sentence.endswith(".") for name, defect in DEFECTS.items()
    )
    assert not DEFECTS["correct"].outputs
    test, given = case("layernorm_bw")
    with pytest.raises(KeyError):
        emulation.run(test, given, "no-such-build")


FATE = """
import numpy as np
from gonogo.kernels.layernorm import emulation as tensix
from gonogo.judging.inputs import generate, quantise
from gonogo.spec.test_spec import TestSpec
test = TestSpec.parse({{"kernel": "{kernel}", "shape": [2, 8]}})
print("before", flush=True)
tensix.run(test, quantise(test, generate(test, 0)), "{build}")
print("after", flush=True)
"""


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_crash_kills_the_process(kernel: str) -> None:
    child = subprocess.run(
        [sys.executable, "-c", FATE.format(kernel=kernel, build="crash")],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert child.returncode == -signal.SIGSEGV
    assert child.stdout == "before\n"


def test_a_hang_lasts_until_it_is_killed() -> None:
    command = [sys.executable, "-c", FATE.format(kernel="layernorm_bw", build="hang")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "before\n"
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(timeout=0.5)
        child.terminate()
        assert child.wait(timeout=WAIT_S) == -signal.SIGTERM
        assert child.stdout.read() == ""

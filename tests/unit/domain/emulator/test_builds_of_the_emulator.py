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
from gonogo.emulator.builds import LAST_BLOCK, LAST_TWO, builds_of
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
SHAPE = (70, 330)


def case(
    kernel: str, shape: tuple[int, ...] = SHAPE, **fields: Any
) -> tuple[TestSpec, dict[str, Array]]:
    """Return a test in which every fault can show, and its inputs.

    It has means away from zero, a large epsilon, a width that needs a mask, and its own statistics.
    """
    others: dict[str, Any] = {"numerics": {"statistics": "own"}} if kernel.endswith("_bw") else {}
    if kernel == "groupnorm_fw":  # rows of as many values
        others = {"parameters": {"num_groups": 2}}
        shape = (shape[0] // 2, 4, shape[1] // 2)
    test = TestSpec.parse(
        {
            "kernel": kernel,
            "shape": list(shape),
            "epsilon": 1e-2,
            "inputs": {"regime": "uniform", "low": -0.5, "high": 1.5},
            **others,
            **fields,
        }
    )
    return test, quantise(test, generate(test, 3))


def touched(one: dict[str, Array], other: dict[str, Array]) -> set[str]:
    return {name for name in one if not np.array_equal(one[name], other[name], equal_nan=True)}


@pytest.mark.parametrize(("kernel", "build"), NUMERIC)
def test_a_wrong_build_touches_what_it_names_and_nothing_else(kernel: str, build: str) -> None:
    test, given = case(kernel)
    if build == "unbiased-variance":  # N = 330 moves rstd by less than half an ulp of bf16
        test, given = case(kernel, (70, 9))
    position = 1 if build == "stale-register" else 0
    touched_outputs = touched(
        emulator.run(test, given, "correct"), emulator.run(test, given, build, position=position)
    )
    known = builds_of(kernel)[build]
    named = set(known.outputs) if known.is_wrong else set()
    assert touched_outputs <= named
    assert bool(touched_outputs) == bool(named)


@pytest.mark.parametrize(("kernel", "build"), LOGIC)
def test_a_wrong_build_is_what_its_float64_logic_says(kernel: str, build: str) -> None:
    test, given = case(kernel)
    outputs, logic = emulator.run(test, given, build), emulator.ideal(test, given, build)
    for name in test.outputs:
        finite = np.isfinite(logic[name])
        assert np.array_equal(finite, np.isfinite(outputs[name]))
        scale = np.abs(logic[name][finite]).max()
        assert np.abs(outputs[name] - logic[name])[finite].max() <= 0.02 * scale, name


@pytest.mark.parametrize(("kernel", "build"), LOGIC)
def test_a_wrong_build_has_another_float64_function(kernel: str, build: str) -> None:
    known = builds_of(kernel)[build]
    if known.is_wrong:
        test, given = case(kernel)
        golden, logic = exact_outputs(test, given), emulator.ideal(test, given, build)
        assert {
            name
            for name in golden
            if not np.allclose(golden[name], logic[name], rtol=1e-9, atol=1e-12)
        } == set(known.outputs)


@pytest.mark.parametrize("build", ["correct", "bf16-accumulate", "hang", "crash"])
def test_a_build_without_a_fault_of_logic_is_the_reference(build: str) -> None:
    for kernel in KERNELS:
        test, given = case(kernel)
        golden, logic = exact_outputs(test, given), emulator.ideal(test, given, build)
        assert all(np.allclose(golden[name], logic[name], 1e-12, 1e-14) for name in golden)


@pytest.mark.parametrize("features", [20, 33])
@pytest.mark.parametrize("build", ["last-two-tiles", "last-block-only"])
def test_faults_of_many_tiles_cannot_show_in_one_or_two(build: str, features: int) -> None:
    test, given = case("layernorm_bw", (40, features))
    assert not touched(emulator.run(test, given, "correct"), emulator.run(test, given, build))
    assert np.array_equal(
        emulator.ideal(test, given, build)["dx"],
        emulator.ideal(test, given, "last-two-tiles")["dx"],
    )
    assert np.allclose(emulator.ideal(test, given, build)["dx"], exact_outputs(test, given)["dx"])


@pytest.mark.parametrize(
    ("weights", "count", "summed"),
    [(LAST_BLOCK, 265, [264]), (LAST_TWO, 265, [263, 264]), (LAST_BLOCK, 6, [3, 4, 5])],
)
def test_the_last_block_of_265_tiles_is_one_tile_and_the_last_two_are_two(
    weights: Callable[[int], Array], count: int, summed: list[int]
) -> None:
    assert np.unique(np.flatnonzero(weights(32 * count)) // 32).tolist() == summed


def test_a_row_that_fills_its_tiles_has_no_mask_to_miss() -> None:
    for kernel in KERNELS:
        test, given = case(kernel, (40, 96))
        assert not touched(
            emulator.run(test, given, "correct"), emulator.run(test, given, "mask-missing")
        )


def test_faults_of_the_statistics_cannot_show_where_they_are_given() -> None:
    test = TestSpec.parse({"kernel": "layernorm_bw", "shape": [40, 9]})
    given = quantise(test, generate(test, 0))
    for build in ("wrong-epsilon", "unbiased-variance"):
        assert not touched(emulator.run(test, given, "correct"), emulator.run(test, given, build))


def test_a_stale_register_depends_on_what_ran_before() -> None:
    test, given = case("layernorm_bw")
    clean = emulator.run(test, given, "correct")
    assert not touched(clean, emulator.run(test, given, "stale-register", position=0))
    after_itself = emulator.run(test, given, "stale-register", position=1)
    assert touched(clean, after_itself) == {"dx"}
    other = {name: a + a for name, a in given.items()}
    emulator.run(test, other, "correct")
    assert touched(after_itself, emulator.run(test, given, "stale-register", position=2)) == {"dx"}


def test_outliers_are_isolated_and_off_by_a_power_of_two() -> None:
    test, given = case("layernorm_bw")
    right, wrong = (
        emulator.run(test, given, "correct")["dx"],
        emulator.run(test, given, "power-of-two-outliers")["dx"],
    )
    off = right != wrong
    assert 1 <= off.sum() <= 4
    assert np.array_equal(wrong[off], 2 * right[off])


def test_the_nan_tile_is_one_tile() -> None:
    test, given = case("layernorm_bw")
    rows, columns = np.nonzero(np.isnan(emulator.run(test, given, "nan-tile")["dx"]))
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (32, 63, 160, 191)
    assert rows.size == 32 * 32


def test_every_build_has_its_sentence_and_an_unknown_one_is_refused() -> None:
    for kernel in ALL:
        known = builds_of(kernel)
        builds = {name: known[name] for name in registry.KERNELS[kernel].listed_builds}
        assert all(build.name == name for name, build in builds.items())
        assert all(build.sentence.endswith(".") for build in builds.values())
        assert not builds["correct"].outputs
    test, given = case("layernorm_bw")
    with pytest.raises(FieldError, match="is no fault of layernorm_bw in this shape"):
        emulator.run(test, given, "no-such-build")


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

"""The search finds the arithmetic of forward kernels that nobody named."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo.kernels.normalization.forward import AFFINE, KNOWN, LINEAR, SINGLE, NormalizedRows
from gonogo.kernels.normalization.moments import Rows, moments, well_conditioned
from gonogo.numerics.formats import round_to
from gonogo.numerics.replay import ladder
from gonogo.numerics.replay.ladder import Finding
from gonogo.numerics.replay.program import ColumnOrder, Program, in_order
from gonogo.numerics.replay.quantity import Quantity
from replay_emulations import Stores, forward, inputs, threaded

EPSILON = 1e-5
ROWS, WIDTH = 70, 96


def find(
    known: tuple[str, str, tuple[str, ...]],
    form: str,
    *,
    centered: bool = True,
    factor: float = 1.0,
    shift_gamma: bool = False,
) -> Finding:
    """Return what the ladder finds for the output of a known program."""
    variance, product, names = known
    given = inputs(ROWS, WIDTH, form)
    used = given | {"gamma": np.roll(given["gamma"], 1)} if shift_gamma else given
    stores = Stores(form, names)
    y = forward(used, EPSILON, stores, variance, product, centered=centered, factor=factor)
    return climbed(given, round_to(y, form), form, centered=centered)


def climbed(
    given: dict[str, NDArray[np.float32]],
    y: NDArray[np.float32],
    form: str,
    *,
    centered: bool = True,
) -> Finding:
    doubles = {name: values.astype(np.float64) for name, values in given.items()}
    beta = doubles["beta"] if centered else None
    rows = Rows(doubles["x"], doubles["gamma"], beta, EPSILON, centered)
    return ladder.climb(NormalizedRows(rows), y, form, [form])


@pytest.mark.parametrize("form", ["bf16", "fp16"])
@pytest.mark.parametrize("known", KNOWN, ids=lambda known: f"{known[1]} {len(known[2])}")
def test_every_known_program_is_found_by_its_bits(
    known: tuple[str, str, tuple[str, ...]], form: str
) -> None:
    finding = find(known, form)
    assert finding.explained, (finding.program.name, finding.size)
    assert finding.mismatch == 0.0
    assert finding.program.stored


@pytest.mark.parametrize("form", ["bf16", "fp16"])
def test_a_composite_of_no_library_is_found_from_everything_stored(form: str) -> None:
    unknown = ("x - mean", LINEAR, (*SINGLE, "root", *AFFINE))
    assert unknown not in KNOWN
    finding = find(unknown, form)
    assert finding.explained
    assert set(finding.program.stored) == set(unknown[2])


@pytest.mark.parametrize("form", ["bf16", "fp16"])
@pytest.mark.parametrize("place", [0, 1, 2, 3, 8])
def test_the_name_lists_what_is_stored(place: int, form: str) -> None:
    finding = find(KNOWN[place], form)
    assert finding.program.name == f"{form}: {', '.join(in_order(KNOWN[place][2]))} stored"


@pytest.mark.parametrize("form", ["bf16", "fp16"])
@pytest.mark.parametrize("place", [1, 3])
def test_rms_norms_programs_are_found_without_a_mean(place: int, form: str) -> None:
    finding = find(KNOWN[place], form, centered=False)
    assert finding.explained
    assert "mean" not in finding.program.stored


@pytest.mark.parametrize("place", [0, 3, 9])
def test_a_factor_on_rstd_is_no_arithmetic(place: int) -> None:
    assert not find(KNOWN[place], "fp16", factor=1.004).explained


@pytest.mark.parametrize("place", [1, 3])
def test_a_shifted_gamma_is_no_arithmetic(place: int) -> None:
    assert not find(KNOWN[place], "bf16", shift_gamma=True).explained


def triton(
    given: dict[str, NDArray[np.float32]], form: str, *, factor: float = 1.0, left_out: int = 0
) -> NDArray[np.float32]:
    """Return y of a kernel whose tl.sum of x and of x x stays in 16 bits.

    factor: of rstd. left_out: elements at the end of each row that its sums leave out.
    """
    x, gamma, beta = (given[name].astype(np.float64) for name in ("x", "gamma", "beta"))
    summed = x[:, : x.shape[1] - left_out]
    mean, square = (threaded(a, form)[:, None] / x.shape[1] for a in (summed, summed**2))
    rstd = factor / np.sqrt(square - mean * mean + EPSILON)
    return round_to((x - mean) * rstd * gamma + beta, form)


@pytest.mark.parametrize("form", ["bf16", "fp16"])
@pytest.mark.parametrize("width", [300, 512])
def test_sums_of_triton_in_16_bits_are_found_by_their_bits(width: int, form: str) -> None:
    given = inputs(ROWS, width, form)
    finding = climbed(given, triton(given, form), form)
    assert finding.explained, (finding.program.name, finding.size)
    assert finding.mismatch == 0.0
    assert finding.program.row_order is ColumnOrder.threads
    factor = 1.02 if form == "bf16" else 1.004
    assert not climbed(given, triton(given, form, factor=factor), form).explained
    assert not climbed(given, triton(given, form, left_out=3), form).explained


def blockwise(given: dict[str, NDArray[np.float32]], block: int) -> NDArray[np.float32]:
    """Return y of an RMSNorm that truncates the root of the rows after the last full block."""
    x, gamma = given["x"].astype(np.float64), given["gamma"].astype(np.float64)
    square = round_to(x * x, "bf16").mean(axis=1, keepdims=True, dtype=np.float64)
    exact = np.sqrt(square + round_to(EPSILON, "bf16"))
    root = round_to(exact, "bf16").astype(np.float64)
    tail = len(x) // block * block
    root[tail:] = round_to(exact[tail:], "bf16", "zero")
    return round_to(x / root * gamma, "bf16")


def test_only_the_rows_after_the_last_block_of_16_truncate_their_root() -> None:
    given = inputs(ROWS, WIDTH, "bf16")
    given["x"] = round_to(given["x"] * np.float32(3e-3), "bf16")  # epsilon's rounding shows, too
    finding = climbed(given, blockwise(given, 16), "bf16", centered=False)
    assert finding.explained, (finding.program.name, finding.size)
    assert {"epsilon", "root % 16 truncated"} <= set(finding.program.stored)
    assert not climbed(given, blockwise(given, 24), "bf16", centered=False).explained
    off = blockwise(given, 16)
    off[3] = round_to(off[3].astype(np.float64) * (1 + 2.0**-7), "bf16")  # a step of rstd
    assert not climbed(given, off, "bf16", centered=False).explained


def test_returned_statistics_are_found_beside_an_offset() -> None:
    given = inputs(ROWS, WIDTH, "fp16")
    given["x"] = round_to(given["x"] + np.float32(100), "fp16")
    stores = Stores("fp16", ("epsilon", "mean", "rstd"))
    y = round_to(forward(given, EPSILON, stores, "x", LINEAR), "fp16")
    finding = climbed(given, y, "fp16")
    assert finding.explained, (finding.program.name, finding.size)
    assert set(finding.program.stored) == {"epsilon", "mean", "rstd"}
    y = round_to(forward(given, EPSILON, stores, "x", LINEAR, factor=1.004), "fp16")
    assert not climbed(given, y, "fp16").explained


def test_a_rounded_epsilon_is_found_where_it_shows() -> None:
    names = (*KNOWN[3][2], "epsilon")
    given = inputs(ROWS, WIDTH, "bf16")
    given["x"] = round_to(given["x"] * 2.0**-9, "bf16")
    y = forward(given, EPSILON, Stores("bf16", names), "x - mean", "(x - mean) rstd")
    finding = climbed(given, round_to(y, "bf16"), "bf16")
    assert finding.explained
    assert "epsilon" in finding.program.stored


def test_only_the_rows_after_the_last_block_store_the_root() -> None:
    rows = Rows(inputs(ROWS, WIDTH, "bf16")["x"].astype(np.float64), None, None, EPSILON)
    stored = dict.fromkeys(("variance + epsilon", "rstd"), "bf16")
    whole, tail, root = (
        moments(Program(stored=dict.fromkeys((*stored, *extra), "bf16")), rows).rstd.values
        for extra in ((), ("root % 64",), ("root",))
    )
    assert np.array_equal(tail[:64], whole[:64])
    assert np.array_equal(tail[64:], root[64:])
    assert not np.array_equal(whole, root)
    some = rows.some(np.array([3, 66]))
    cut = moments(Program(stored={**stored, "root % 64": "bf16"}), some).rstd.values
    assert np.array_equal(cut, tail[[3, 66]])


def test_a_variance_of_x_has_the_mean_before_it_is_stored() -> None:
    x = inputs(ROWS, WIDTH, "bf16")["x"] + np.float32(100.3)
    rows = Rows(round_to(x, "fp16").astype(np.float64), None, None, EPSILON)
    exact = rows.x.var(axis=1) + EPSILON
    shifted = {
        variance: moments(Program(variance, stored={"mean": "bf16"}), rows).shifted.values[:, 0]
        for variance in ("x", "x - mean")
    }
    assert np.allclose(shifted["x"], exact, rtol=1e-6)
    assert (shifted["x - mean"] > 1.001 * exact).any()


def test_near_ties_everywhere_earn_no_program() -> None:
    # x - mean lies on ties of fp16, so a stored square would be allowed a step in each element
    generator = np.random.default_rng(5)
    given = inputs(9, 341, "fp16")
    given["x"] = round_to(100.0 + generator.standard_normal((9, 341)), "fp16")
    y = forward(given, EPSILON, Stores("fp16", ()), "x - mean", "(x - mean) rstd", factor=1.001)
    assert not climbed(given, round_to(y, "fp16"), "fp16").explained


def test_what_few_rows_hide_is_sought_on_the_rows_that_a_program_missed() -> None:
    # OpenVINO's RMSNorm: the stored square moves the stored root in one row of thirty
    given = inputs(2048, 64, "bf16", seed=3)
    names = ("square", "root", "gamma x^")
    y = forward(
        given, EPSILON, Stores("bf16", names), "x - mean", "(x - mean) rstd", centered=False
    )
    finding = climbed(given, round_to(y, "bf16"), "bf16", centered=False)
    assert finding.explained, finding.mismatch
    assert {"square", "root"} <= set(finding.program.stored)


def test_a_program_of_no_library_that_stores_nearly_everything_is_found() -> None:
    # mean gamma rstd stays in fp32
    names = ("mean", "x - mean", "square", "variance", "variance + epsilon", "rstd", "gamma rstd")
    names = (*names, "x gamma rstd", "beta - mean gamma rstd")
    given = inputs(ROWS, WIDTH, "bf16")
    product = "x (gamma rstd) + (beta - mean gamma rstd)"
    y = forward(given, EPSILON, Stores("bf16", names), "x - mean", product)
    finding = climbed(given, round_to(y, "bf16"), "bf16")
    assert finding.explained, finding.mismatch
    assert {"mean", "gamma rstd", "x gamma rstd"} <= set(finding.program.stored)
    assert "mean gamma rstd" not in finding.program.stored


@pytest.mark.parametrize("form", ["bf16", "fp16"])
def test_truncated_outputs_are_found_and_faults_behind_them(form: str) -> None:
    given = inputs(ROWS, WIDTH, form)
    for factor, is_right in ((1.0, True), (1.004, False), (0.996, False)):
        y = forward(given, EPSILON, Stores(form, ()), "x - mean", "(x - mean) rstd", factor=factor)
        finding = climbed(given, round_to(y, form, "zero"), form)
        assert finding.explained is is_right, (factor, finding.program.name)
        if is_right:
            assert finding.program.name == "fp32-inside, output truncated"


def test_values_on_the_grid_earn_no_truncating_program() -> None:
    # x^ is 1 or -1 in every row, and gamma x^ lies on bf16's grid: truncating may go either way
    generator = np.random.default_rng(6)
    given = inputs(16, 64, "bf16")
    signs = generator.permuted(np.tile([1.0, -1.0], (16, 32)), axis=1)
    given["x"] = (1024 * signs).astype(np.float32)
    given["beta"] = np.zeros_like(given["beta"])
    y = forward(given, 1e-9, Stores("bf16", ()), "x - mean", "(x - mean) rstd", factor=1.004)
    assert not climbed(given, round_to(y, "bf16"), "bf16").explained


def test_ties_that_allow_everything_in_one_row_do_not_excuse_it() -> None:
    # mean 0 and variance 4 are exact in every arithmetic; so is row 4, but where mean^2 = 38^2 is
    # stored in bf16: it is a tie, and the variance as E[x^2] - mean^2 may be 0 or 8
    signs = np.random.default_rng(1).permuted(np.tile([2.0, -2.0], (16, 48)), axis=1)
    x = signs + np.where(np.arange(16) == 4, 38.0, 0.0)[:, None]
    gamma, beta = 1.0 + np.arange(96.0)[None] / 128, np.arange(96.0)[None] / 64
    graph = NormalizedRows(Rows(x, gamma, beta, EPSILON))
    y = round_to(graph.replay(Program()).values, "bf16").astype(np.float32)
    y[4] = y[3]
    finding = ladder.climb(graph, y, "bf16", ["bf16"])
    assert not finding.explained, finding.program.name


def test_errors_have_the_same_order_in_every_process() -> None:
    """Their squares are added up in that order, which shows in a variance's last bit."""
    names = [f"source {place}" for place in range(12)]
    first, second = (
        Quantity(np.ones((2, 1)), shared={name: np.ones((2, 1)) for name in half})
        for half in (names[:7], names[5:])
    )
    mean = Quantity(np.array([[0.0], [100.0]]))
    assert list(well_conditioned(mean, first, second).shared) == names

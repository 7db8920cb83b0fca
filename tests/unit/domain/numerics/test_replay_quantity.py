"""Operations of a replay: their values, and the noise that fp32 would add."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo.numerics.formats import round_to, ulp
from gonogo.numerics.replay.program import Order, Program
from gonogo.numerics.replay.quantity import NOTHING, Machine, Quantity

Array = NDArray[np.float64]
MACHINE = Machine(Program())


def drawn(shape: tuple[int, int], seed: int = 0) -> Array:
    generator = np.random.default_rng(seed)
    return generator.uniform(1, 4, shape).astype(np.float32).astype(np.float64)


def simulated(seed: int) -> tuple[Array, Quantity]:
    """Return errors of (a - b) c / d + a in float32, and its replay."""
    a, b, c, d = (drawn((1, 20000), 4 * seed + place) for place in range(4))
    narrow = [value.astype(np.float32) for value in (a, b, c, d)]
    computed = (narrow[0] - narrow[1]) * narrow[2] * (np.float32(1) / narrow[3]) + narrow[0]
    m, (qa, qb, qc, qd) = MACHINE, map(Quantity, (a, b, c, d))
    replay = m.add(m.divide(m.multiply(m.subtract(qa, qb), qc), qd), qa)
    assert np.allclose(replay.values, (a - b) * c / d + a, rtol=1e-14)
    return computed - replay.values, replay


def test_the_noise_is_that_of_float32_operations() -> None:
    error, replay = simulated(1)
    ratio = np.sqrt(np.mean(error**2 / replay.variance))
    assert 0.85 < ratio < 1.15


def test_results_that_fp32_holds_are_not_rounded() -> None:
    a = round_to(drawn((1, 100)), "bf16").astype(np.float64)
    b = np.where(np.arange(100) % 2, a, 1.0 + 2.0**-23)
    product = MACHINE.multiply(Quantity(a), Quantity(b))
    assert (product.noise[0, 1::2] == 0.0).all()
    inexact = product.values.astype(np.float32) != product.values
    assert inexact.any()
    assert np.array_equal(product.noise > 0.0, inexact)


def test_a_result_is_rounded_where_an_operand_was() -> None:
    rounded = Quantity(np.array([[1.0, 1.0]]), np.array([[0.0, 2.0**-50]]))
    total = MACHINE.add(rounded, Quantity(np.array([[2.0, 2.0]])))
    assert total.noise[0, 0] == 0.0
    assert total.noise[0, 1] == pytest.approx(2.0**-50 + (2.0**-24 * 2.0) ** 2 / 3, abs=0)


def test_shared_errors_cancel_and_independent_ones_do_not() -> None:
    x = Quantity(np.full((1, 4), 3.0), NOTHING, {"mean": np.full((1, 1), 1e-3)})
    difference = MACHINE.subtract(x, x)
    assert difference.shared["mean"].max() == 0.0
    noisy = Quantity(np.full((1, 4), 3.0), np.full((1, 1), 1e-6))
    assert MACHINE.subtract(noisy, noisy).noise.max() == pytest.approx(2e-6, abs=0)


def test_a_product_carries_each_factor_s_error_times_the_other() -> None:
    a = Quantity(np.array([[5.0]]), NOTHING, {"mean": np.array([[0.1]])})
    b = Quantity(np.array([[7.0]]), NOTHING, {"mean": np.array([[0.2]]), "rstd": np.array([[1.0]])})
    shared = MACHINE.multiply(a, b).shared
    assert shared["mean"] == pytest.approx(np.array([[0.1 * 7 + 0.2 * 5]]))
    assert shared["rstd"] == pytest.approx(np.array([[5.0]]))


def test_values_of_float32_inputs_are_widened() -> None:
    tenth = np.full((1, 1), 0.1, np.float32)
    assert Quantity(tenth).values.dtype == np.float64
    assert (
        MACHINE.multiply(Quantity(tenth), Quantity(tenth)).values[0, 0] == float(tenth[0, 0]) ** 2
    )


def test_slack_of_both_operands_adds_up() -> None:
    a, b = (
        Quantity(np.array([[value]]), slack=np.array([[slack]]))
        for value, slack in ((-5.0, 0.25), (7.0, 0.5))
    )
    assert MACHINE.add(a, b).slack.tolist() == [[0.75]]
    assert MACHINE.subtract(a, b).slack.tolist() == [[0.75]]
    widest = 5.25 * 7.5 - 5.0 * 7.0
    assert MACHINE.multiply(a, b).slack.tolist() == [[widest]]


@pytest.mark.parametrize(("method", "exponent"), [("root", 0.5), ("reciprocal", -1.0)])
def test_powers_carry_errors_by_their_slope(method: str, exponent: float) -> None:
    a = Quantity(np.array([[4.0]]), np.array([[1e-8]]), {"variance": np.array([[1e-3]])})
    result = getattr(MACHINE, method)(a)
    slope = exponent * 4.0 ** (exponent - 1)
    assert result.values[0, 0] == 4.0**exponent
    assert result.shared["variance"][0, 0] == pytest.approx(slope * 1e-3)
    assert result.noise[0, 0] == pytest.approx(slope**2 * 1e-8, rel=1e-4, abs=0)


def test_rsqrt_has_a_rounding_for_its_approximation() -> None:
    a = Quantity(np.array([[3.0]]), np.array([[1e-30]]))
    rounding = (2.0**-24 * 0.5) ** 2 / 3
    assert MACHINE.rsqrt(a).noise[0, 0] == pytest.approx(2 * rounding, rel=1e-9, abs=0)


def test_epsilon_may_be_held_in_fp32_or_wider() -> None:
    total = MACHINE.epsilon(Quantity(np.array([[0.0]])), 1e-5)
    assert total.values[0, 0] == float(np.float32(1e-5))
    assert total.shared["epsilon"][0, 0] == abs(float(np.float32(1e-5)) - 1e-5)


def test_a_mean_names_the_order_of_its_sum_as_an_error_of_the_row() -> None:
    x = Quantity(drawn((3, 500)), np.full((1, 1), 1e-10))
    mean = MACHINE.mean(x, "mean", "sum of x")
    assert mean.values[:, 0] == pytest.approx(x.values.mean(axis=1), rel=1e-15)
    assert mean.noise[:, 0] == pytest.approx([1e-10 / 500] * 3, abs=0)
    assert (mean.shared["mean"] > 0).all()
    per_row = mean.per_row("mean")
    assert per_row.noise.max() == 0.0
    assert np.allclose(per_row.variance, mean.variance, rtol=1e-12, atol=0.0)


@pytest.mark.parametrize("order", [Order.blocked, Order.running])
def test_a_mean_has_the_error_of_its_order_and_none_of_its_terms(order: Order) -> None:
    x = drawn((2, 4000)) * (1.0 + 2.0**-30)  # fp32 doesn't hold the terms
    mean = Machine(Program(order=order)).mean(Quantity(x), "mean", "sum of x").values[:, 0]
    terms = x.astype(np.float32)
    summed = np.cumsum(terms, axis=1, dtype=np.float32)[:, -1].astype(np.float64)
    error = summed - terms.sum(axis=1, dtype=np.float64) if order is Order.running else 0.0
    np.testing.assert_allclose(mean, (x.sum(axis=1) + error) / 4000, rtol=1e-12)


def test_a_stored_value_is_rounded_and_slack_only_near_a_tie() -> None:
    step = float(ulp(1.0, "bf16"))
    values = 1.0 + step * np.array([[0.5 + 1e-6, 0.25, 1.5 - 1e-6, 0.5 + 1e-3]])
    machine = Machine(Program(stored={"x^": "bf16"}))
    a = Quantity(values, np.full((1, 1), (1e-5 * step) ** 2))
    stored = machine.store(a, "x^")
    assert stored.values.tolist() == [[1 + step, 1.0, 1 + step, 1 + step]]
    assert stored.slack.tolist() == [[step, 0.0, step, 0.0]]
    assert not stored.noise.any()
    assert machine.store(a, "gamma x^") is a


def test_a_stored_sum_is_rounded_before_it_is_divided() -> None:
    x = Quantity(np.full((1, 7), 1.0 + 2.0**-7))
    mean = Machine(Program(stored={"sum of x": "bf16"})).mean(x, "mean", "sum of x")
    stored = float(round_to(np.array([7 * (1.0 + 2.0**-7)]), "bf16")[0])
    assert mean.values[0, 0] == pytest.approx(stored / 7, rel=1e-15)


def test_a_sum_that_is_stored_at_each_step_reaches_as_far_as_its_terms() -> None:
    machine = Machine(Program(stored={"sum of x": "bf16"}))
    terms = np.array([[1.0, 2.0, 3.0, 5.0]])
    for slack, noise in ((0.1, 0.0), (0.0, 0.1**2 / 64), (0.05, 0.05**2 / 64)):
        total = machine.row_sum(
            Quantity(terms, np.full((1, 1), noise), slack=np.full((1, 1), slack)), "sum of x"
        )
        assert total.values.tolist() == [[11.0]]
        assert total.slack.tolist() == [[7 * 2.0**-4]]  # four terms of .1, in steps of bf16
    assert machine.row_sum(Quantity(terms), "sum of x").slack.tolist() == [[0.0]]


def test_columns_and_joined_blocks_keep_every_part() -> None:
    whole = Quantity(drawn((4, 6)), drawn((4, 6), 1), {"mean": drawn((4, 1), 2)}, drawn((4, 6), 3))
    some = whole.columns(np.array([1, 4]))
    assert np.array_equal(some.values, whole.values[:, [1, 4]])
    assert some.shared["mean"].shape == (4, 1)
    two = Quantity(drawn((4, 2))).columns(slice(1, 2))
    assert two.values.shape == (4, 1)
    left, right = whole.columns(slice(0, 2)), whole.columns(slice(2, 6))
    joined = Quantity.joined([left, right], axis=1)
    assert np.array_equal(joined.values, whole.values)
    assert np.array_equal(joined.slack, whole.slack)
    assert np.array_equal(joined.variance, whole.variance)

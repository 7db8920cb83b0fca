from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from gonogo.graph import OPERATIONS, Spec, TraceError, trace
from gonogo.graph.special import erf, erfc, log_ndtr
from traced_kernels import evaluate, normal

SMOOTH = [
    operation
    for operation in OPERATIONS.values()
    if operation.family == "elementwise" and not operation.discontinuous and not operation.kind
]
ATTRIBUTES = {"tril": {"k": 1}, "triu": {"k": -1}}


@pytest.mark.parametrize("operation", SMOOTH, ids=lambda operation: operation.name)
def test_slopes_are_the_derivatives(operation):
    count = {"where": 3}.get(operation.name, getattr(operation.value, "nin", 1))
    args = [np.abs(normal(3, 4)) + 0.3 for _ in range(count)]
    if operation.name == "where":
        args[0] = args[0] > 0.8
    more = ATTRIBUTES.get(operation.name, {})
    result = operation.value(*args, **more)
    slopes = operation.slopes(args, result, more)
    assert len(slopes) == count
    for at in range(operation.name == "where", count):
        step = 1e-6
        moved = [arg + step * (k == at) for k, arg in enumerate(args)]
        other = [arg - step * (k == at) for k, arg in enumerate(args)]
        change = operation.value(*moved, **more) - operation.value(*other, **more)
        slope = np.broadcast_to(slopes[at], result.shape)
        np.testing.assert_allclose(slope, change / (2 * step), rtol=1e-7, atol=1e-9)


def test_a_negative_number_has_whole_powers_with_finite_slopes():
    power = OPERATIONS["power"]
    args = [np.array([-2.0, 3.0]), np.asarray(3)]
    slopes = power.slopes(args, power.value(*args), {})
    np.testing.assert_allclose(slopes[0], [12, 27])
    np.testing.assert_allclose(slopes[1], [0, 27 * math.log(3)])


def test_every_operation_says_what_interpreters_ask():
    for name, operation in OPERATIONS.items():
        assert operation.name == name
        assert (operation.slopes is not None) == (operation.family == "elementwise")
        assert operation.half_steps >= 0
        if operation.family in ("view", "select", "source"):
            assert operation.half_steps == 0


def test_error_functions_agree_with_the_standard_library_everywhere():
    x = np.concatenate([np.linspace(-26.5, 26.5, 20_011), [0.46875, 4.0, 1e-300, 5e-324]])
    np.testing.assert_allclose(erf(x), [math.erf(value) for value in x], rtol=1e-15)
    np.testing.assert_allclose(erfc(x), [math.erfc(value) for value in x], rtol=2e-15)
    assert erf([math.inf, -math.inf]).tolist() == [1, -1]
    assert erfc([math.inf, -math.inf, 1e300]).tolist() == [0, 2, 0]
    assert np.isnan(erf(math.nan))


@pytest.mark.parametrize(
    ("x", "want"),
    [
        (-30.0, -4.54321243956343197107e2),
        (-5.0, -1.50649983939887257361e1),
        (-0.5, -1.17591176159361860888),
        (0.5, -3.68946415288656393066e-1),
        (3.0, -1.35080996474819379884e-3),
        (10.0, -7.61985302416052606597e-24),
        (30.0, -4.90671392714818705953e-198),
        (-1e150, -5e299),
        (-1e200, -math.inf),
        (math.inf, 0.0),
    ],
)
def test_log_ndtr_keeps_its_digits_where_the_probability_underflows(x, want):
    assert log_ndtr(x) == pytest.approx(want, rel=5e-16)


SHAPE = (4, 6, 2)
indices = st.one_of(
    arrays.basic_indices(SHAPE, allow_newaxis=True),
    arrays.integer_array_indices(SHAPE),
    st.tuples(
        st.slices(4), st.lists(st.integers(-6, 5), min_size=1, max_size=3), st.integers(0, 1)
    ),
    st.tuples(
        st.integers(0, 3), st.just(None), st.just(...), st.lists(st.integers(0, 1), min_size=1)
    ),
)


@given(indices)
def test_any_index_means_what_it_means_to_numpy(index):
    x = np.arange(48.0).reshape(SHAPE)
    inputs = {"x": x}
    got = evaluate(trace(lambda x: {"y": x[index] * 1}, inputs), inputs)["y"]
    np.testing.assert_array_equal(got, x[index] * 1)


def test_shapes_are_checked_without_values():
    with pytest.raises(TraceError, match="broadcast"):
        trace(lambda x, y: {"z": x + y}, {"x": Spec((3, 4)), "y": Spec((2, 4))})

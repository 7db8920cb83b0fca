"""The normal distribution's tails against scipy's."""

from __future__ import annotations

import numpy as np
from scipy.special import log_ndtr, ndtr

from gonogo.numerics.tails import FAR, log_upper_tail, upper_tail

EVERYWHERE = np.concatenate([np.linspace(-40.0, 40.0, 4001), [-np.inf, -1e9, -0.0, np.inf]])


def test_upper_tails_keep_their_digits_from_one_end_to_the_other() -> None:
    np.testing.assert_allclose(upper_tail(EVERYWHERE), ndtr(-EVERYWHERE), rtol=1e-12, atol=1e-300)
    assert upper_tail(EVERYWHERE.reshape(5, -1)).shape == (5, 801)


def test_logarithms_of_tails_go_on_where_the_tails_underflow() -> None:
    finite = np.concatenate([EVERYWHERE[np.isfinite(EVERYWHERE)], [FAR, 1e3, 1e8]])
    expected = log_ndtr(-finite)
    np.testing.assert_allclose(log_upper_tail(finite), expected, rtol=1e-13, atol=1e-15)
    near = np.array([np.nextafter(FAR, 0.0), FAR])
    assert np.ptp(log_upper_tail(near)) < 1e-11

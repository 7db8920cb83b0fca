"""The tolerance that a false alarm's button fills in: the gauge's, else what its largest error
needs."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

import pytest

from gonogo_dashboards.kit.tolerance_advice import FORM_COMPARATORS, of_false_alarm, widened

TEST = {"kernel": "layernorm_bw", "shape": [8, 64], "tolerance": {"rtol": 1e-3, "atol": 0.004}}


@pytest.mark.parametrize(
    ("tolerance", "largest", "wider"),
    [
        ({"rtol": 1e-3, "atol": 0.004}, 1.0664, {"rtol": 0.0011, "atol": 0.0043}),
        ({"atol": 0.5}, 3.0, {"atol": 1.5}),
        ({"rtol": 0.0, "atol": 0.5}, 1.01, {"atol": 0.51}),
        ({"atol": 0.5}, 0.9, {}),  # no error is larger
        ({"atol": 0.5}, None, {}),
        ({"atol": 0.5, "pcc": 0.999}, 2.0, {}),  # another comparator decides, too
        ({"dx": {"atol": 0.5}}, 2.0, {}),
    ],
)
def test_a_wider_tolerance_allows_the_largest_error(
    tolerance: dict, largest: float | None, wider: dict
) -> None:
    assert widened(tolerance, largest) == wider
    for name, value in wider.items():
        assert value >= tolerance[name] * largest  # never below what the error needs


def test_a_false_alarm_s_button_fills_in_the_advised_tolerance() -> None:
    step = of_false_alarm("v1-k", TEST, {}, 1.0664)
    query = dict(parse_qsl(urlsplit(step.url).query, keep_blank_values=True))
    assert query == {"test": "v1-k", "rtol": "0.0011", "atol": "0.0043"}
    assert step.label == "Submit with rtol 0.0011, atol 0.0043"
    gauged = of_false_alarm("v1-k", TEST, {"dx": {"rtol": 0.0, "atol": 0.02}}, 1.0664)
    assert "The gauge advises dx: rtol 0, atol 0.02." in gauged.text
    filled = dict(parse_qsl(urlsplit(gauged.url).query, keep_blank_values=True))
    assert "0.02" in filled["rest"]
    # the form would add the test's comparators of all outputs to those of dx, which is refused
    assert {filled[name] for name in FORM_COMPARATORS} == {""}

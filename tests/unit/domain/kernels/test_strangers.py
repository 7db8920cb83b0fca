"""Kernels by a stranger, right and wrong: a small part of `python -m benchmarks.strangers`."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.strangers.cases import CASES, Case
from benchmarks.strangers.judged import put_to_test
from benchmarks.strangers.plugin import Stranger
from benchmarks.strangers.rights import RIGHTS
from benchmarks.strangers.showing import Showing
from benchmarks.strangers.wrongs import WRONGS
from gonogo.judging.inputs import generate, quantise

FORWARD, BACKWARD = (
    next(case for case in CASES if case.test.kernel == kernel)
    for kernel in ("layernorm_fw", "layernorm_bw")
)

RIGHT = (
    ("sum-shuffled", FORWARD),
    ("moments-welford", FORWARD),
    ("stored-all-zero", FORWARD),  # every buffer truncates: no noise, and no fault
    ("stored-all-even", FORWARD),  # x - mean is stored, too
    ("stored-all-zero", BACKWARD),
    ("stored-xhat-by-cores", BACKWARD),  # partial sums down a column over other rows than a tile's
    ("form-spread", BACKWARD),
)
WRONG = (
    ("layernorm_fw", "squares-last-tile-dropped", FORWARD),
    ("layernorm_fw", "y-race-drops-a-tile", FORWARD),
    ("layernorm_fw", "beta-shifted", FORWARD),
    ("layernorm_bw", "s2-missing", BACKWARD),
    ("layernorm_bw", "dx-stale-tile", BACKWARD),
    ("layernorm_bw", "dgamma-last-row-dropped", BACKWARD),
)


@pytest.mark.parametrize(
    ("name", "case"),
    RIGHT,
    ids=lambda parameter: parameter if isinstance(parameter, str) else parameter.name,
)
def test_a_right_stranger_is_not_flagged(name: str, case: Case) -> None:
    record = put_to_test(f"right:{name}", case, seeds=2)
    assert not record.flagged, record


@pytest.mark.parametrize(
    ("kernel", "name", "case"),
    WRONG,
    ids=lambda parameter: parameter if isinstance(parameter, str) else "",
)
def test_a_wrong_stranger_whose_fault_shows_is_flagged(kernel: str, name: str, case: Case) -> None:
    rest = f"{kernel}:{name}:stored"
    record = put_to_test(f"wrong:{rest}", case, seeds=4, clean=f"clean:{rest}")
    assert record.showing is Showing.shows
    assert record.flagged, record


def test_a_fault_that_changes_nothing_cannot_show() -> None:
    rest = "layernorm_fw:squares-tail-repeated:plain"  # 96 columns have no padding
    record = put_to_test(f"wrong:{rest}", FORWARD, seeds=1, clean=f"clean:{rest}")
    assert record.showing is Showing.hidden
    assert not record.flagged


def test_the_plug_in_gives_what_the_contract_asks_for() -> None:
    given = quantise(BACKWARD.test, generate(BACKWARD.test, 0))
    outputs = Stranger("right:sum-pairwise").run(BACKWARD.test.canonical(), dict(given))
    assert {name: value.shape for name, value in outputs.items()} == {
        "dx": (64, 96),
        "dgamma": (96,),
        "dbeta": (96,),
    }
    assert all(value.dtype == np.float32 for value in outputs.values())
    with pytest.raises(ValueError, match="unknown build"):
        Stranger("right:nobody")


def test_there_are_enough_of_them() -> None:
    assert sum(not right.exotic for right in RIGHTS.values()) >= 40
    assert len(WRONGS) >= 80

"""All seeds of a test decide together what one seed leaves open."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.suspects import (
    MAX_SEEDS,
    MOST,
    evidence,
    pooled_outputs,
    seeds_to_decide,
    settled_verdict,
    unexplained_together,
)
from gonogo.spec.verdicts import Verdict

Entry = dict[str, Any]


def factor(estimate: float, *, is_certain: bool = False, deviation: float = 2e-7) -> Entry:
    """Return a common factor of an output's rows; its limit is 2^-22."""
    about = {"source": "rstd", "limit": 2.0**-22, "deviation": deviation}
    return {**about, "estimate": estimate, "is_certain": is_certain}


def entry(explanation: str = "explained", common: float = 0.0) -> Entry:
    """Return an output's entry with a common factor that no seed alone is certain of."""
    numbers = {"distance": 3.0, "shared": 1.0, "common": [factor(common)]}
    return {"explanation": explanation, **numbers}


def of_dx(*entries: Entry) -> list[tuple[int, Mapping[str, Entry]]]:
    return list(enumerate({"dx": one, "dbeta": entry()} for one in entries))


RIGHT, SUSPECT, WRONG = entry(), entry("suspect"), entry("unexplained")
UP, DOWN = entry(common=5e-7), entry(common=-5e-7)


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        pytest.param([RIGHT] * 8, "", id="all right"),
        pytest.param([SUSPECT, *[RIGHT] * 8], "", id="one suspect"),
        pytest.param([SUSPECT, SUSPECT, *[RIGHT] * 6], "suspect in 2 of 8 seeds", id="two suspect"),
        pytest.param([UP] * 8, "rstd has a factor of 1", id="a factor that all share"),
        pytest.param([UP, DOWN] * 4, "", id="factors that cancel out"),
        pytest.param([WRONG, SUSPECT, RIGHT], "", id="unexplained alone, needs no others"),
        pytest.param([WRONG, SUSPECT, SUSPECT], "suspect in 2 of 2 seeds", id="nor counts as one"),
        pytest.param([SUSPECT], "", id="a single seed"),
    ],
)
def test_seeds_together_find_what_each_leaves_open(entries: Sequence[Entry], reason: str) -> None:
    together = unexplained_together(of_dx(*entries))
    assert list(together) == (["dx"] if reason else [])
    assert together.get("dx", "").startswith(reason)


def test_one_suspect_seed_stays_suspect_among_any_number_of_others() -> None:
    answer = pooled_outputs(of_dx(SUSPECT, *[RIGHT] * 30))
    assert (answer["dx"].explanation, answer["dx"].seeds) == ("suspect", 31)
    assert answer["dbeta"].explanation == "explained"


def test_repeats_of_a_seed_count_once_by_the_worst() -> None:
    repeats = [(7, {"dx": SUSPECT}), (7, {"dx": SUSPECT}), (7, {"dx": RIGHT}), (8, {"dx": RIGHT})]
    assert unexplained_together(repeats) == {}
    answer = pooled_outputs(reversed(repeats))["dx"]
    assert (answer.explanation, answer.seeds) == ("suspect", 2)


@pytest.mark.parametrize(
    ("verdict", "explanation", "settled"),
    [
        (Verdict.suspect, "suspect", Verdict.pass_by_tolerance),
        (Verdict.pass_, "explained", Verdict.pass_by_tolerance),
        (Verdict.fail_by_tolerance, "explained", Verdict.fail),
        (Verdict.fail, "suspect", Verdict.fail),
        (Verdict.inconclusive, "inconclusive", Verdict.inconclusive),
        (Verdict.not_judged, "not_judged", Verdict.not_judged),
    ],
)
def test_a_seed_of_an_output_that_is_unexplained_together_is_wrong(
    verdict: Verdict, explanation: str, settled: Verdict
) -> None:
    outputs = {"dx": entry(explanation)}
    assert settled_verdict(verdict, outputs, {"dx": "a reason"}) is settled
    assert settled_verdict(verdict, outputs, {"dbeta": "a reason"}) is verdict


CERTAIN = [factor(estimate, is_certain=True) for estimate in (2.0**-24, -(2.0**-21))]


@pytest.mark.parametrize(
    ("statistics", "beyond"),
    [
        ({"distance": 4.0, "shared": 2.0}, 0.5),
        ({"distance": 4.0, "shared": 24.0}, 3.0),
        ({"distance": 16.0, "shared": None}, 2.0),
        ({"distance": 4.0, "common": CERTAIN}, 2.0),
        ({"distance": 4.0, "common": [factor(1.0)]}, 0.5),
        ({"distance": 4.0, "common": None}, 0.5),
        ({"distance": math.inf}, MOST),
        ({"distance": 1e9}, 1e3),
        ({"max_abs": 9.0}, None),
        ({"distance": 24.0, "nonfinite": 2}, None),
    ],
)
def test_evidence_is_the_largest_ratio_to_what_is_explained(
    statistics: dict[str, Any], beyond: float | None
) -> None:
    assert evidence(statistics) == (None if beyond is None else pytest.approx(beyond))


@pytest.mark.parametrize(
    ("ratios", "seeds"),
    [
        ((1.5, 0.5, 0.5, 0.5), 12),  # mean .75, deviation .5: (2 x .5 / .25)^2 = 16 in all
        ((0.5, 1.5, 1.5, 1.5), 12),
        ((1.5, 1.5, 1.4, 1.5), 0),
        ((0.5, 1.5, 0.5, 1.501), MAX_SEEDS),
        ((1.2,), POLICY.suspect_seeds),
        ((), POLICY.suspect_seeds),
    ],
)
def test_so_many_seeds_decide_as_their_scatter_asks(ratios: tuple[float, ...], seeds: int) -> None:
    rows = [{"distance": 8 * ratio, "shared": 0.1} for ratio in ratios]
    assert seeds_to_decide([rows]) == seeds
    assert seeds_to_decide([rows, [{"distance": 12.0, "shared": None}] * 3]) == seeds
    assert seeds_to_decide([]) == 0

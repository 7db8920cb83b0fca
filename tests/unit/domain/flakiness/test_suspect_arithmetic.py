"""Seeds that were replayed are pooled by their replay: small budgets acquit of nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.splits import mean_split
from gonogo.flakiness.suspects import MAX_SEEDS, pooled, pooled_explanations, seeds_to_decide
from gonogo.spec.verdicts import Explanation, explain

QUIET = {"budget_ratio": 0.5, "chi": 0.4, "row_z": 0.8, "count": 4096}


def seed(cell: float, *, reproduced: bool = True, may_store: bool = False) -> dict[str, Any]:
    return {
        **QUIET,
        "arithmetic": "fp32-inside" if reproduced else None,
        "nearest_arithmetic": "fp32-inside",
        "cell_max": cell,
        "cell_row_max": cell / 2,
        "may_store": may_store,
    }


def joint(*seeds: dict[str, Any]) -> Explanation:
    return pooled_explanations({"y": list(seeds)})["y"]


RIGHT = [seed(3.0)] * 8


@pytest.mark.parametrize(
    ("seeds", "explanation"),
    [
        ([seed(12.0, reproduced=False), *RIGHT], Explanation.explained),
        ([*[seed(12.0, reproduced=False)] * 2, *RIGHT], Explanation.suspect),
        ([*[seed(20.0, reproduced=False)] * 2, *RIGHT], Explanation.unexplained),
    ],
    ids=["one rare element", "two seeds at the edge", "two seeds beyond it"],
)
def test_distances_from_a_replay_are_pooled_like_budgets(
    seeds: list[dict[str, Any]], explanation: Explanation
) -> None:
    assert explain(seeds[0]) is not Explanation.explained
    assert joint(*seeds) is explanation


def test_a_seed_that_no_model_reproduces_stays_suspect_among_any_number_of_others() -> None:
    unknown = seed(40.0, reproduced=False, may_store=True)
    assert explain(unknown) is Explanation.suspect
    assert joint(unknown, *RIGHT * 4) is Explanation.suspect
    assert pooled([unknown, *RIGHT])["arithmetic"] is None


def test_the_pooled_model_is_that_of_most_seeds_and_named_budgets_have_none() -> None:
    other = {**seed(1.0), "arithmetic": "bf16: x^ stored"}
    assert pooled([other, *RIGHT])["arithmetic"] == "fp32-inside"
    assert not pooled([QUIET] * 3).keys() & {"arithmetic", "cell_max", "may_store"}


@pytest.mark.parametrize(
    ("others", "explanation"),
    [
        ({"unseen_terms": ["gamma"]}, Explanation.inconclusive),
        ({"unseen_terms": []}, Explanation.explained),
    ],
)
@pytest.mark.parametrize("verdict", ["fail", "fail_by_tolerance"])
def test_a_red_output_is_not_acquitted_of_a_term_that_no_seed_could_see(
    others: dict[str, Any], verdict: str, explanation: Explanation
) -> None:
    chance = seed(12.0, reproduced=False)
    blind = {**seed(3.0), "unseen_terms": ["gamma", "beta"]}
    rest = [{**seed(3.0), **others}] * 7
    assert joint({**chance, "verdict": verdict}, blind, *rest) is explanation
    assert joint({**chance, "verdict": "suspect"}, blind, *rest) is Explanation.explained
    assert pooled([chance, blind, *rest]).get("unseen_terms", []) == others["unseen_terms"]


def test_a_red_output_beside_the_suspect_one_is_not_acquitted_either() -> None:
    blind = {**seed(3.0), "unseen_terms": ["gamma"], "explanation": "inconclusive"}
    assert joint(blind, *[{**seed(3.0), "unseen_terms": ["gamma"]}] * 7) is Explanation.inconclusive
    assert joint(blind, {**seed(3.0), "unseen_terms": []}) is Explanation.explained


@pytest.mark.parametrize(
    ("missed", "explanation"),
    [((1, 0), Explanation.suspect), ((1, 1), Explanation.unexplained), ((2, 0), "unexplained")],
)
def test_two_missed_rows_of_all_seeds_are_a_finding_and_one_is_not(
    missed: tuple[int, int], explanation: Explanation
) -> None:
    def of(number: int) -> dict[str, Any]:
        counted = {"arithmetic": "bf16: rstd stored", "missed": number, "rows": 32}
        reproduced = seed(40.0 if number else 1.0, reproduced=not number, may_store=True)
        return {**reproduced, "missed_rows": counted}

    seeds = [*map(of, missed), *[of(0)] * 6]
    assert joint(*seeds) == explanation
    assert pooled(seeds)["missed_rows"]["missed"] == sum(missed)
    assert joint(*[of(0)] * 8) is Explanation.explained


@pytest.mark.parametrize(
    ("evidence", "seeds"),
    [
        ((1.5, 0.5, 0.5, 0.5), 12),  # mean .75, deviation .5: (2 x .5 / .25)^2 = 16 in all
        ((0.5, 1.5, 1.5, 1.5), 12),
        ((1.5, 1.5, 1.4, 1.5), 0),
        ((0.5, 1.5, 0.5, 1.501), MAX_SEEDS),
        ((1.2,), POLICY.suspect_seeds),
        ((), POLICY.suspect_seeds),
    ],
)
def test_so_many_seeds_decide_as_their_scatter_asks(
    evidence: tuple[float, ...], seeds: int
) -> None:
    rows = [{"budget_ratio": 0.1, "row_z": 4 * ratio} for ratio in evidence]
    assert seeds_to_decide([rows]) == seeds
    assert seeds_to_decide([rows, [{"budget_ratio": 0.1, "row_z": 6.0}] * 3]) == seeds
    assert seeds_to_decide([]) == 0


def test_a_split_of_means_needs_enough_points_and_tells_its_chance() -> None:
    jump = np.repeat([0.0, 1.0], 12) + np.linspace(0, 0.1, 24)
    assert mean_split(jump, 5, POLICY) == (17, 1 / (POLICY.change_permutations + 1))
    assert mean_split(jump, 5, replace(POLICY, change_least=13)) is None
    assert mean_split(jump[9:15], 5, replace(POLICY, change_least=2)) is None

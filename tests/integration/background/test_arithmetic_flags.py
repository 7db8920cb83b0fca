"""A kernel that computes in another way than on earlier builds: explained, and yet flagged once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from database_params import BOTH
from gonogo.flakiness.policy import POLICY
from gonogo_service.flags import store as flags
from gonogo_service.flags.model import FlagRow
from gonogo_service.kit.database import engine as engines
from gonogo_service.kit.outbox import outbox
from rows_of_layernorm import CHANGE, INSIDE, STORED, TEST, row
from stored_histories import World, world

KIND = "arithmetic_changed"
SEEDS = range(8)


@pytest.fixture
def here(lite_database_url: str) -> Iterator[World]:
    with world(lite_database_url) as new_world:
        yield new_world


def night(here: World, sequence: int, *, stores: bool, seeds: int = len(SEEDS)) -> None:
    """Store a build's job; seeds beyond the first eight repeat their numbers."""
    rows = [{**row(seed % len(SEEDS), stores=stores), "seed": seed} for seed in range(seeds)]
    here.job(rows, test=TEST, build=f"b{sequence}", sequence=sequence)


def flag(here: World) -> FlagRow:
    return here.flags(TEST)[KIND]


@BOTH
def test_another_arithmetic_opens_one_flag_that_resolves_when_the_old_one_is_back(
    here: World,
) -> None:
    night(here, 1, stores=False)
    night(here, 2, stores=False)
    assert here.flags(TEST) == {}
    night(here, 3, stores=True)
    opened = flag(here)
    proof = opened.evidence
    assert (opened.state, proof["words"]) == ("open", f"y: {CHANGE}")
    assert (proof["before"], proof["after"]) == ({"y": INSIDE}, {"y": STORED})
    assert proof["found_in"] == {"y": "8 of 8 seeds"}
    assert proof["earlier_builds"] == {"y": ["b2", "b1"]}
    assert proof["check"].startswith("gonogo check --kernel layernorm_fw --shape 1,1,16,256")
    assert proof["rerun"]["builds"] == ["b2", "b3"]
    assert set(here.flags(TEST)) == {KIND}  # nothing else is wrong with it
    night(here, 4, stores=True)
    renewed = flag(here)
    assert (renewed.id, renewed.jobs) == (opened.id, 2)
    for sequence in (5, 6):
        night(here, sequence, stores=False, seeds=POLICY.quiet_seeds // POLICY.quiet_builds)
    assert flag(here).state == "resolved"
    night(here, 7, stores=True)
    assert flag(here).state == "reopened"
    with engines.reading(here.engine) as session:
        messages = outbox.due(session, topics=("flag.opened", "flag.resolved"))
        history = [entry.what for entry in flags.get(session, opened.id).history]
    topics = [message.topic for message in messages if opened.id in str(message.payload)]
    assert topics == ["flag.opened", "flag.resolved", "flag.opened"]
    assert history == ["reopened", "resolved", "opened"]


def test_a_new_arithmetic_that_stays_is_expected_after_three_nights(here: World) -> None:
    night(here, 1, stores=False)
    night(here, 2, stores=False)
    night(here, 3, stores=True)
    for sequence in (4, 5, 6):
        night(here, sequence, stores=True)
    assert flag(here).jobs == 2  # the tie of builds 1 to 4 says nothing, then it is expected
    night(here, 7, stores=False)
    assert flag(here).evidence["words"] == f'y: was "{STORED}", is "{INSIDE}"'


def changed(*rows: dict[str, Any], **statistics: Any) -> list[dict[str, Any]]:
    """Return rows whose output has other statistics."""
    return [
        {**result, "outputs": {"y": {**result["outputs"]["y"], **statistics}}} for result in rows
    ]


@pytest.mark.parametrize("reason", ["small", "first build", "not explained"])
def test_what_says_nothing_about_the_arithmetic_opens_no_flag(here: World, reason: str) -> None:
    before = [row(seed) for seed in SEEDS]
    after = [row(seed, stores=True) for seed in SEEDS]
    if reason == "small":
        before, after = changed(*before, count=999), changed(*after, count=999)
    if reason == "not explained":
        after = changed(*after, explanation="inconclusive", verdict="inconclusive")
    if reason != "first build":
        here.job(before, test=TEST, build="b1", sequence=1)
    here.job(after, test=TEST, build="b2", sequence=2)
    assert here.flags(TEST) == {}


@pytest.mark.parametrize("mixed", [True, False])
def test_a_name_that_differs_between_seeds_by_chance_opens_no_flag(
    here: World, mixed: bool
) -> None:
    first, second = [row(seed) for seed in SEEDS], [row(seed, stores=True) for seed in SEEDS]
    before, after = [*first[:5], *second[5:]], [*first[:3], *second[3:]]
    here.job(before if mixed else first, test=TEST, build="b1", sequence=1)
    here.job(after if mixed else second, test=TEST, build="b2", sequence=2)
    assert (KIND in here.flags(TEST)) is not mixed

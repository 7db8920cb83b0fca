"""`gonogo submit --seeds`, and the command's messages about sequential and suspect seeds."""

from __future__ import annotations

import pytest

from gonogo.errors import FieldError
from gonogo_service.cli.jobs import decided
from gonogo_service.cli.submit import seeds_of


def test_seeds_are_a_number_or_sequential() -> None:
    assert seeds_of("64", 7) == {"start": 7, "count": 64}
    assert seeds_of("sequential:500", 0) == {
        "policy": "sequential",
        "max": 500,
        "start": 0,
        "stop_on_finding": True,
    }
    assert seeds_of("sequential:500", 3, keep_going=True)["stop_on_finding"] is False


@pytest.mark.parametrize(
    "text",
    ["0", "-1", "many", "sequential", "sequential:0", "bayes:5", "sequential:5:5", ":5", ""],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(FieldError, match="such as 64 or sequential:500"):
        seeds_of(text, 0)


def test_only_sequential_seeds_can_keep_going() -> None:
    with pytest.raises(FieldError, match="others run all"):
        seeds_of("64", 0, keep_going=True)


def test_the_command_says_what_was_decided_and_what_became_of_suspect_seeds() -> None:
    assert decided({"stop": None, "suspects": None}) == decided({}) == []
    job = {
        "stop": {"decision": "stable", "words": "stopped after 49"},
        "suspects": {"words": "8 seeds added: seed 3 is suspect"},
    }
    assert decided(job) == [
        "seeds: stable, stopped after 49",
        "suspect seeds: 8 seeds added: seed 3 is suspect",
    ]

"""Tests of properties take the number of examples that the profile asks for."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from hypothesis import settings

from checkout import ROOT
from property_examples import USUAL, examples


@pytest.fixture
def at_night() -> Iterator[None]:
    """The profile of `make explore`."""
    before = settings.get_current_profile_name()
    settings.load_profile("nightly")
    yield
    settings.load_profile(before)


def test_a_usual_run_takes_the_number_itself() -> None:
    if settings.get_current_profile_name() != USUAL:
        pytest.skip("another profile was asked for")
    assert examples(15) == 15


@pytest.mark.usefixtures("at_night")
def test_a_night_takes_ten_times_as_many() -> None:
    assert examples(15) == 150


def test_no_test_has_a_number_that_beats_the_profile_s() -> None:
    fixed = re.compile(r"max_examples=\d")
    assert [
        path.name
        for path in (ROOT / "tests").rglob("test_*.py")
        if fixed.search(path.read_text("utf-8"))
    ] == []

"""Each first goal of a newcomer is within ten minutes of the docs: reading, pasting and machine."""

from __future__ import annotations

import pytest

from checks import reading


@pytest.mark.parametrize("road", reading.ROADS, ids=lambda road: road.goal)
def test_a_first_goal_is_reached_in_time(road: reading.Road) -> None:
    pages = " -> ".join(f"docs/{page}.md" for page, _ in road.pages)
    assert reading.words(road) > 100
    assert reading.minutes(road) <= reading.LIMIT_MINUTES, f"{pages}: split it, or say less"


def test_reading_ends_where_the_goal_is_reached() -> None:
    whole = reading.read_until("own_kernel", "")
    assert whole.startswith(reading.read_until("own_kernel", "The gauge measures a test"))
    with pytest.raises(ValueError, match="substring not found"):
        reading.read_until("own_kernel", "no such sentence")

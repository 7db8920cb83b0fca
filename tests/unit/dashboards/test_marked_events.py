"""The labels of events on a chart never run into each other, nor into the words of its lines."""

from __future__ import annotations

from typing import Any

from gonogo_dashboards.charts import charts
from gonogo_dashboards.kit.axis_events import AxisEvent


def event(place: float, kind: str = "firmware") -> AxisEvent:
    """A change at a place of the axis."""
    return AxisEvent(place, f"b{place:g}", kind, kind, "18 until here, 19 from here on")


def lines(*events: AxisEvent, span: float = 30, **options: bool) -> list[Any]:
    """The lines of these events on an axis of a length."""
    [series] = charts.marked(events, span, **options)
    return list(series["markLine"]["data"])


def test_changes_at_one_place_are_one_line_with_one_number() -> None:
    shown = lines(event(2, "arithmetic"), event(2), event(9), numbered=True)
    assert [(line["xAxis"], line["label"]["formatter"]) for line in shown] == [(2, "1"), (9, "2")]
    assert {line["label"]["position"] for line in shown} == {"end"}, "above the plot"


def test_without_numbers_a_word_stands_there_or_how_many_changes() -> None:
    shown = lines(event(2, "arithmetic"), event(2), event(9))
    assert [line["label"]["formatter"] for line in shown] == ["2 changes", "firmware"]


def test_a_label_without_room_is_left_out_and_its_line_stays() -> None:
    shown = lines(event(2), event(2.5), event(3), numbered=True)
    assert [line["label"]["show"] for line in shown] == [True, False, True]
    assert [line["label"]["formatter"] for line in shown] == ["1", "2", "3"]

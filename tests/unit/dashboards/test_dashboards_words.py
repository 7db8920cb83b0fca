"""Words, addresses and templates of the pages."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import pytest

from gonogo import urls
from gonogo.spec.verdicts import Verdict
from gonogo_dashboards import pages
from gonogo_dashboards.kit import commands, csv_export, words
from gonogo_dashboards.tests.test_list import Chip


@dataclass(frozen=True)
class ListLine:
    """A line of a list."""

    name: str
    verdict: str | None
    seeds: int
    chip: Chip | None
    chips: tuple[Chip, ...]
    labels: dict[str, str]


def test_every_verdict_has_a_shape_of_its_own_where_it_judges_a_kernel() -> None:
    assert set(words.MARKS) == set(Verdict)
    judging = [words.MARKS[verdict] for verdict in Verdict if verdict.judges_kernel]
    assert (
        len({mark.path for mark in judging}) == len({mark.sign for mark in judging}) == len(judging)
    )


def test_a_word_from_a_newer_version_is_shown_as_it_is() -> None:
    assert words.mark("wobbly").label == "wobbly"
    assert words.sentence("marginal") == ""
    assert words.ordered(["pass", "marginal", "error"]) == ["error", "pass", "marginal"]


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        # three digits
        (words.number, None, "–"),
        (words.number, 0.0, "0"),
        (words.number, 0.10123, "0.101"),
        (words.number, 157.3, "157"),
        (words.number, 1.5, "1.5"),
        (words.number, 4.4e-6, "4.40e-6"),
        (words.number, 12345.6, "12,300"),
        (words.number, 2e7, "2.00e7"),
        (words.number, 7, "7"),
        # at most two units
        (words.duration, 0, "0 s"),
        (words.duration, 42.7, "42 s"),
        (words.duration, 185, "3 min 5 s"),
        (words.duration, 7800, "2 h 10 min"),
        (words.duration, 400_000, "4 d 15 h"),
        (words.duration, 0.31, "0.3 s"),
        # the unit in which a pace is a plain number
        (words.pace, 0.0, (0.0, "s")),
        (words.pace, 2.0, (2.0, "s")),
        (words.pace, 0.5, (30.0, "min")),
        (words.pace, 0.01, (36.0, "h")),
        (words.pace, 1e-4, (pytest.approx(0.36), "h")),
        # one unit
        (words.ago, -5, "just now"),
        (words.ago, 30, "30 s ago"),
        (words.ago, 200, "3 min ago"),
        (words.ago, 90_000, "1 d ago"),
        (words.often, 1, "once"),
        (words.often, 2000, "2,000 times"),
        # without letters and fractions
        (words.moment, "2026-11-23T14:28:24.490337Z", "2026-11-23 14:28:24 UTC"),
        (words.moment, None, "–"),
    ],
)
def test_numbers_and_times_are_short(function: Any, value: Any, text: Any) -> None:
    assert function(value) == text


def test_a_reading_s_name_says_its_quantity_and_unit() -> None:
    assert words.quantity("temperature_c") == ("temperature", "°C")
    assert words.quantity("core_clock_mhz") == ("core_clock", "MHz")
    assert [words.quantity(name)[1] for name in ("firmware", "c", "fan_rpm")] == ["", "", ""]


def test_addresses_escape_what_they_hold() -> None:
    assert urls.job("../x?y#z") == "/jobs/..%2Fx%3Fy%23z"
    assert urls.job("a", output="d&x", as_json=True) == "/jobs/a.json?output=d%26x"
    assert urls.jobs({"state": "", "build": "a b"}, cursor="c") == "/jobs?build=a+b&cursor=c"
    assert urls.jobs() == "/jobs"


def test_tolerances_are_said_for_all_outputs_or_for_each() -> None:
    assert commands.tolerance_words({"rtol": 0.001, "atol": 0.5}) == "rtol 0.001, atol 0.5"
    assert (
        commands.tolerance_words({"dx": {"pcc": 0.999}, "dbeta": {"ulp": 2}})
        == "dx: pcc 0.999; dbeta: ulp 2"
    )
    assert commands.tolerance_words({}) == "no tolerance declared"


def test_json_in_a_page_can_not_end_its_block() -> None:
    text = (
        pages.environment()
        .from_string("{{ value | data }}")
        .render(value={"a": "</script><script>alert(1)</script><!--"})
    )
    assert "<" not in text
    assert json.loads(text) == {"a": "</script><script>alert(1)</script><!--"}


def test_no_template_needs_what_the_content_security_policy_forbids() -> None:
    templates = [path for folder in pages.template_folders() for path in folder.glob("*.html")]
    assert len(templates) > 40
    for path in templates:
        text = path.read_text()
        assert " style=" not in text, path.name
        assert " on" + "click=" not in text, path.name
        assert "<style" not in text, path.name
        for script in text.split("<script")[1:]:
            assert script.startswith((' type="application/json"', ' type="module" src=')), path.name


def test_the_error_page_shows_text_as_text() -> None:
    page = pages.error_page(404, "<b>No</b>", "{{ 7 * 7 }} <i>")
    body = bytes(page.body).decode()
    assert page.status_code == 404
    assert "&lt;b&gt;No&lt;/b&gt;" in body
    assert "{{ 7 * 7 }} &lt;i&gt;" in body


def test_the_login_keeps_where_to_go() -> None:
    body = bytes(pages.login_page(next_url='/jobs/1?a="b"', error="wrong").body).decode()
    assert 'name="next" value="/jobs/1?a=&#34;b&#34;"' in body
    assert "wrong" in body


def test_a_list_as_csv_has_plain_columns_and_no_formulas() -> None:
    chip = Chip("=1+1", "Hollow", "", "/tests", chosen=True)
    line = ListLine("@x", None, 3, chip, (chip,), {"suite": "nightly"})
    header = (
        "name,verdict,seeds,chip.value,chip.label,chip.verdict,chip.url,chip.chosen,"
        "chip.sentence,chip.count,labels"
    )
    assert csv_export.text(ListLine, []).split("\r\n") == [header, ""]
    bare = replace(line, chip=None)
    [_, first, second, _] = csv_export.text(ListLine, [bare, line]).split("\r\n")
    assert (first.count("=1+1"), second.count("=1+1")) == (0, 1)
    assert first.count(",") == header.count(",")
    assert csv_export.text(ListLine, [line]).split("\r\n") == [
        header,
        """'@x,,3,'=1+1,Hollow,,/tests,True,,,"{""suite"":""nightly""}\"""",
        "",
    ]

"""Names that turn the direction of writing: none reverses the words beside it on a page, and fields
and copied lines hold the stored text."""

from __future__ import annotations

import re

import pytest

from gonogo_dashboards import pages
from gonogo_dashboards.kit.bidi import ISOLATE, POP, contained

HOSTILE = "<img src=x>\u202egnp.exe"
RIGHT_TO_LEFT = "בדיקת לילה"
FIELD = re.compile(
    r'\bvalue="(\{\{.*?\}\})"|<textarea[^>]*>(\{\{.*?\}\})<|<code id="\{\{ id \}\}">(\{\{.*?\}\})<'
)
TEMPLATE = '<p title="{{ name }}">on {{ name }} (n150), 3</p><input value="{{ name | exact }}">'


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("plain", "plain"),
        ("3×64 – ein Gerät", "3×64 – ein Gerät"),
        ("a\u202egnp.exe", "a\\u202egnp.exe"),
        ("\u2067b\u2069", "\\u2067b\\u2069"),
        (RIGHT_TO_LEFT, f"{ISOLATE}{RIGHT_TO_LEFT}{POP}"),
        (f"\u202e{RIGHT_TO_LEFT}", f"{ISOLATE}\\u202e{RIGHT_TO_LEFT}{POP}"),
        (7, 7),
        (None, None),
    ],
)
def test_a_text_that_turns_others_is_contained(given: object, shown: object) -> None:
    assert contained(given) == shown


def test_pages_contain_every_text_and_fields_keep_it() -> None:
    page = pages.environment().from_string(TEMPLATE).render(name=HOSTILE)
    text, field = page.split("<input")
    assert "\u202e" not in text
    assert text.count("\\u202egnp.exe") == 2
    assert "\u202egnp.exe" in field
    assert "<img" not in page


def test_every_field_of_a_template_is_exact() -> None:
    fields = {
        (path.name, text)
        for folder in pages.template_folders()
        for path in folder.glob("*.html")
        for groups in FIELD.findall(path.read_text())
        for text in groups
        if text
    }
    assert len(fields) > 20
    assert [field for field in sorted(fields) if not field[1].endswith("| exact }}")] == []

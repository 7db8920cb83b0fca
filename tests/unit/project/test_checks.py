"""The checks of names, docstrings and layout find what they are for."""

from __future__ import annotations

import pytest

from checks import structure, words


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("found = 1", "the name `found`"),
        ("for each in (): pass", "the name `each`"),
        ("def told(): pass", "the name `told`"),
        ("class Kept: pass", "the name `Kept`"),
        ("def f(wanted): pass", "the name `wanted`"),
        ("self._said = 1", "the name `_said`"),
        ('"""Of a job."""', 'opens with "Of"'),
        ('"""That of a job."""', 'opens with "That of"'),
        ('def f():\n    """What a job is."""', 'opens with "What"'),
        ('class C:\n    x: int\n    """Those of a job."""', 'opens with "Those"'),
    ],
)
def test_a_name_that_names_nothing_and_an_empty_opening_are_found(
    source: str, sentence: str
) -> None:
    ((_, shown),) = words.findings(source)
    assert sentence in shown


@pytest.mark.parametrize(
    "source",
    ["rows = found_rows = 1", '"""Official names."""', "print(each)", '"""Whatever comes."""'],
)
def test_other_names_and_openings_are_left_alone(source: str) -> None:
    assert list(words.findings(source)) == []


def test_circles_are_found_whatever_their_length() -> None:
    imports = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": {"f"}, "f": {"e"}, "g": set()}
    assert sorted(structure.circles(imports)) == [("a", "b", "c"), ("e", "f")]
    assert list(structure.circles({"a": {"b"}, "b": set()})) == []

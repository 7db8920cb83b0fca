"""Names, errors and logs of others can't command the terminal of whoever looks at them."""

from __future__ import annotations

import io

import pytest
from rich.table import Table
from rich.text import Text

from gonogo.cli import app
from gonogo.cli.kit import cells, show
from gonogo.errors import FieldError

HOSTILE = "name\x1b]52;c;cm0gLXJm\x07\x1b[2J\x9b31m\u202egnp\rover"
"""It would set the clipboard, clear the screen, and write over its own line."""


def commands(text: str) -> set[str]:
    """Return the characters of a text that command a terminal."""
    return {character for character in text if not character.isprintable()} - {"\n"}


@pytest.mark.parametrize("soft_wrap", [False, True])
def test_the_console_s_escapes_are_its_own(soft_wrap: bool) -> None:
    table = Table(HOSTILE, "b")
    table.add_row(HOSTILE, Text(HOSTILE, style="red"))
    for printed in (HOSTILE, Text(HOSTILE), table):
        out = show.SafeConsole(file=io.StringIO(), width=200)
        out.print(printed, soft_wrap=soft_wrap, markup=False)
        text = out.file.getvalue()  # type: ignore[attr-defined]
        assert "name\N{SYMBOL FOR ESCAPE}]52;" in text
        assert commands(text) == set()
    assert isinstance(show.console(), show.SafeConsole)


def test_values_are_shown_by_their_labels() -> None:
    counts = cells.cell("counts", {"pass_by_tolerance": 2, "pass": 1})
    assert counts.plain == "2 hollow pass, 1 pass"
    assert cells.cell("state", "cancelled").plain == "canceled"
    diagnosis = cells.cell("diagnosis", {"verdict": "fail_by_tolerance", "can_tell": True})
    assert diagnosis.plain == "verdict=False alarm, can_tell=yes"
    assert cells.label("health_at", ("health", "health_at")) == "health at"
    assert cells.label("created_at", ("health", "created_at")) == "created"


def test_an_error_s_escapes_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        app.fail(FieldError(HOSTILE, 1, HOSTILE), 2)
    assert commands(capsys.readouterr().err) == set()

"""`--fail-on`: one option, one default and one meaning for every command that judges."""

from __future__ import annotations

from typing import Any

import typer

from gonogo.flakiness.gating import FailOn as FailOn

HELP = (
    "What makes the exit code 1. new: red (fail, hang, crash) or hollow (green and unexplained),"
    " and not so on the base; without a base all is new. fail: red; hollow: red or hollow;"
    " suspect: also false alarms, suspect, inconclusive; any: all but pass. If nothing ran, it is"
    " never 0."
)


def fail_on_option(more: str = "") -> Any:
    """Return the option; `more` follows its help."""
    return typer.Option(FailOn.new, "--fail-on", help=f"{HELP} {more}".strip())


FAIL_ON = fail_on_option()

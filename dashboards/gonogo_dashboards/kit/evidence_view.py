"""The evidence of a finding for reading: its JSON as facts and tables in words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gonogo_dashboards.kit import commands, words

MAX_ROWS = 40
"""Rows of a table on a page; the JSON version has all of them."""
MAX_MEMBERS = 12
"""Members of a list on one line."""
_ID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_RATE = {"failures", "runs", "low", "high"}
_SHOWN_APART = {"check", "check_leaves_out", "sentence", "diagnosis", "words"}
_LABELS = {"extent": "based on", "no_go": "mutants", "known_wrong": "mutants whose fault can show"}
_DIGITS = 12
_LONG_HEX = 16


@dataclass(frozen=True)
class EvidenceTable:
    """A part of the evidence with rows: one cell of text per column.

    `left_out` counts the rows that aren't shown.
    """

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: int


@dataclass(frozen=True)
class EvidenceView:
    """The evidence as names with values, tables, and the commands that reproduce it."""

    facts: tuple[tuple[str, str], ...]
    tables: tuple[EvidenceTable, ...]
    checks: tuple[str, ...]
    check_leaves_out: tuple[str, ...]


def read(evidence: Mapping[str, Any]) -> EvidenceView:
    """Return the evidence of a finding for reading; null and empty values are left out."""
    facts: list[tuple[str, str]] = []
    tables: list[EvidenceTable] = []
    _collect("", evidence, facts, tables)
    checks = evidence.get("check") or ()
    left = evidence.get("check_leaves_out") or ()
    commands_shown = (checks,) if isinstance(checks, str) else tuple(str(check) for check in checks)
    return EvidenceView(
        tuple(facts), tuple(tables), commands_shown, tuple(str(name) for name in left)
    )


def _collect(
    above: str, values: Mapping[str, Any], facts: list[tuple[str, str]], tables: list[EvidenceTable]
) -> None:
    """Collect the facts and tables of an object.

    An object that holds more than plain values is walked through, and its name precedes theirs.
    """
    for name, value in values.items():
        if name in _SHOWN_APART or value is None or value in ({}, [], ""):
            continue
        title = f"{above}: {label(name)}" if above else label(name)
        table = _table(title, value)
        if table is not None:
            tables.append(table)
        elif (
            isinstance(value, Mapping)
            and not value.keys() >= _RATE
            and any(_deep(member) for member in value.values())
        ):
            _collect(title, value, facts, tables)
        else:
            facts.append((title, text(value)))


def _deep(value: Any) -> bool:
    """Return whether a value needs more than a line: an object, a rate, or a list of objects."""
    if isinstance(value, Mapping):
        return True
    return isinstance(value, Sequence) and not isinstance(value, str) and len(value) > 1


def label(name: str) -> str:
    """Return a JSON name for reading."""
    return _LABELS.get(name, name.replace("_", " "))


def rate_words(rate: Mapping[str, Any]) -> str:
    """Return a rate with its interval: "3 of 20 (15%, 4% to 35%)"."""
    if not rate.get("runs") or rate.get("low") is None or rate.get("high") is None:
        return "Unknown: no runs"
    share = rate["failures"] / rate["runs"]
    interval = f"{percent(rate['low'])} to {percent(rate['high'])}"
    return f"{rate['failures']:,} of {rate['runs']:,} ({percent(share)}, {interval})"


def percent(share: float | None) -> str:
    """Return a fraction as a percentage."""
    return "–" if share is None else f"{100 * share:.3g}%"


def text(value: Any) -> str:
    """Return a value of the evidence in one line.

    Numbers have three digits, digests are shortened, and rates are in words.
    """
    if isinstance(value, Mapping):
        if value.keys() >= _RATE:
            return rate_words(value)
        if isinstance(value.get("words"), str):
            return str(value["words"])
        return ", ".join(
            f"{label(str(name))} {text(member)}"
            for name, member in value.items()
            if member is not None
        )
    if isinstance(value, Sequence) and not isinstance(value, str):
        shown = ", ".join(text(member) for member in value[:MAX_MEMBERS])
        return f"{shown}, … ({len(value):,} in all)" if len(value) > MAX_MEMBERS else shown
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return words.number(value)
    if (
        isinstance(value, str)
        and len(value) >= _LONG_HEX
        and all(character in "0123456789abcdef" for character in value)
    ):
        return value[:_DIGITS]
    if isinstance(value, str) and _ID.fullmatch(value):
        return f"…{value[-_DIGITS:]}"  # ids begin with the time, so ids of one night begin alike
    return (
        "–"
        if value is None
        else commands.plain(value)
        if not isinstance(value, int)
        else str(value)
    )


def _table(name: str, value: Any) -> EvidenceTable | None:
    """Return a list of objects, or an object of objects, as a table; None for anything else.

    The names of an object of objects become the first column.
    """
    if (
        isinstance(value, Mapping)
        and value
        and all(isinstance(member, Mapping) for member in value.values())
    ):
        rates = any(member.keys() >= _RATE for member in value.values())
        if len(value) == 1 and not rates:
            return None
        rows = [
            {"": key, "rate": member} if rates else {"": key, **member}
            for key, member in value.items()
        ]
    elif (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and value
        and all(isinstance(member, Mapping) for member in value)
    ):
        rows = [dict(member) for member in value]
    else:
        return None
    columns = tuple(dict.fromkeys(column for row in rows for column in row))
    cells = tuple(tuple(text(row.get(column)) for column in columns) for row in rows[:MAX_ROWS])
    return EvidenceTable(
        name, tuple(label(column) for column in columns), cells, max(0, len(rows) - MAX_ROWS)
    )

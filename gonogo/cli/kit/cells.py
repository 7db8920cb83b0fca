"""Records of the server as people read them: a line per field, a table of several."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gonogo.cli.kit import show
from gonogo.spec.verdicts import Verdict

Item = Mapping[str, Any]
Cell = str | Callable[[Item], Any]
"""A column: the dotted path of a field, or a function of the item."""
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
EMPTY: tuple[object, ...] = (None, "", [], {})
"""Values that say nothing."""
MAX_LINE, MAX_MEMBER = 120, 60
"""Characters of an object that is shown on one line, and of an object within it."""
_COUNTS = ("counts", "verdicts", "outcomes")
"""Fields that hold how many seeds have a verdict."""


def print_fields(out: Console, fields: Item) -> None:
    """Print a line per field that has a value."""
    lines = Table(box=None, show_header=False, pad_edge=False)
    lines.add_column(style="dim", no_wrap=True)
    lines.add_column(overflow="fold")
    for name, value in fields.items():
        if value not in EMPTY:
            lines.add_row(label(name, fields), cell(name, value))
    out.print(lines)


def table(items: Iterable[Item], columns: Mapping[str, Cell]) -> Table:
    """Return a table with a row per item; numbers stand at the right of their column."""
    lines = [
        [column(item) if callable(column) else _at(item, column) for column in columns.values()]
        for item in items
    ]
    rows = Table(box=None, header_style="dim", pad_edge=False)
    for place, name in enumerate(columns):
        kinds = {type(line[place]) for line in lines if line[place] not in EMPTY}
        justify: Any = "right" if kinds and kinds <= {int, float} else "left"
        rows.add_column(name, no_wrap=place == 0, overflow="fold", justify=justify)
    for line in lines:
        rows.add_row(*map(cell, columns, line))
    return rows


def cell(name: str, value: Any) -> Text:
    """Return the value of a field as people read it. Text of others is no markup."""
    if isinstance(value, Text):
        return value
    if name == "verdict":
        return show.verdict(value)
    return Text(_named(name, value))


def _named(name: str, value: Any) -> str:
    """Return a value in words, by its field where values have labels."""
    if name in _COUNTS and isinstance(value, Mapping):
        return show.counts(value)
    if name == "verdict" and value in set(Verdict):
        return Verdict(value).label
    if name == "state" and isinstance(value, str):
        return show.state(value)
    return words(value)


def _at(item: Any, path: str) -> Any:
    for name in path.split("."):
        item = item.get(name) if isinstance(item, Mapping) else None
    return item


def label(name: str, names: Collection[str] = ()) -> str:
    """Return the label of a field; that of a time loses its "at" where no other has the label."""
    short = name.removesuffix("_at")
    return (name if short in names else short).replace("_", " ")


def words(value: Any) -> str:
    """Return a value as people write it: a time, a number, yes or no, a list, an object."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return show.number(value)
    if isinstance(value, str):
        return value[:19].replace("T", " ") + " UTC" if _TIME.match(value) else value
    if isinstance(value, Mapping):
        members = {name: _member(name, item) for name, item in value.items() if item not in EMPTY}
        whole = ", ".join(f"{name}={text}" for name, text in members.items())
        return whole if len(whole) <= MAX_LINE else _lines(members)
    if isinstance(value, list | tuple):
        if not any(isinstance(item, dict) for item in value):
            return ", ".join(map(words, value))
        return "\n".join(str(item.get("words") or _member("", item)) for item in value)
    return str(value)


def _member(name: str, value: Any) -> str:
    """Return a member of an object in one short word; `--json` has all of a large one."""
    if not isinstance(value, dict | list) or name in _COUNTS:
        return _named(name, value)
    text = json.dumps(value)
    return text if len(text) <= MAX_MEMBER else f"... ({len(value)} members, see --json)"


def _lines(members: Mapping[str, str]) -> str:
    return "\n".join(f"{label(name, members)}: {text}" for name, text in members.items())


STAGE_COLORS = {
    "passed": "green",
    "partial": "yellow",
    "failed": "bold red",
    "hung": "red",
    "blocked": "dim",
}


def stages_table(content: Mapping[str, Any]) -> Table:
    """Return a table of a staged suite's stages, from the "stages" of a diagnosis.

    A regression stands beside its stage.
    """
    lost = {
        regression["stage"]: f"regression: it passed on {regression['since']}"
        for regression in content.get("regressions") or ()
    }

    def in_the_way(stage: Item) -> str:
        blocks = "blocker" if stage["name"] == content.get("blocker") else ""
        return "; ".join(filter(None, (blocks, stage.get("reason"), lost.get(stage["name"]))))

    columns: dict[str, Cell] = {
        "": "place",
        "stage": "name",
        "status": lambda stage: Text(stage["status"], STAGE_COLORS.get(stage["status"], "")),
        "passed": "passed",
        "failed": "failed",
        "skipped": "skipped",
        "what is in the way": in_the_way,
    }
    stages = content["stages"]
    return table(({"place": n, **stage} for n, stage in enumerate(stages, 1)), columns)

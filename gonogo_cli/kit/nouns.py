"""A noun of the API on the terminal: its list as a table, one of it as lines, both as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gonogo_cli.kit import show
from gonogo_cli.kit.client import Client

Item = Mapping[str, Any]
Cell = str | Callable[[Item], Any]
"""A column: the dotted path of a field, or a function of the item."""

JSON = typer.Option(False, "--json", help="Print JSON.")
LIMIT = typer.Option(50, "--limit", "-n", min=1, max=10_000, help="List at most this many.")
CURSOR = typer.Option(
    None, "--cursor", help="Go on where a list ended: `next` of the JSON, or the line below it."
)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
_HIDDEN = ("links",)


@dataclass(frozen=True)
class Noun:
    """Things of one kind, such as suites.

    Attributes:
        name: their name in addresses and commands, in the plural.
        columns: the columns of their list.
        words: what one of them is called in a sentence, such as "a suite".
        key: what names one of them on the command line.
        page: from the key to the path of its page; None: it has none.
        parts: fields that hold a list of objects -> the columns of their table.
        path: their address in the API; default: /NAME.
        is_paged: False where the API answers with all of them at once.
    """

    name: str
    columns: Mapping[str, Cell]
    words: str
    key: str = "id"
    page: Callable[[str], str] | None = None
    parts: Mapping[str, Mapping[str, Cell]] = field(default_factory=dict)
    path: str = ""
    is_paged: bool = True

    @property
    def address(self) -> str:
        """Return the path of the list in the API."""
        return self.path or f"/{self.name}"

    def of(self, identity: str) -> str:
        """Return the path of one of them in the API."""
        from urllib.parse import quote

        return f"{self.address}/{quote(identity, safe='/@+:')}"


def print_list(
    noun: Noun, *, limit: int, cursor: str | None, as_json: bool, **filters: Any
) -> None:
    """Print a list of the server's: a table, or {"items": [...], "next": cursor or null}."""
    with Client() as client:
        if noun.is_paged:
            page = client.some(noun.address, limit=limit, cursor=cursor, **filters)
        else:
            page = client.call("GET", noun.address, **filters)
    if as_json:
        show.print_json({"items": page["items"], "next": page.get("next")})
        return
    errors = show.console(stderr=True)
    if page["items"]:
        show.console().print(table(page["items"], noun.columns))
    else:
        errors.print(f"no {noun.name}", style="dim")
    if page.get("next"):
        errors.print(
            f"there are more: --cursor {page['next']}, or a larger --limit",
            style="dim",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


def print_one(noun: Noun, record: Item, *, as_json: bool, url: str | None = None) -> None:
    """Print one record of the server's: a line per field, a table per part, its page."""
    if as_json:
        show.print_json(record if url is None else {**record, "url": url})
        return
    out = show.console()
    fields = {name: value for name, value in record.items() if name not in _HIDDEN}
    parts = {name: fields.pop(name) for name in noun.parts if fields.get(name)}
    print_fields(out, fields)
    for name, items in parts.items():
        out.print(Text(f"\n{_label(name)}", style="bold"))
        out.print(table(items, noun.parts[name]))
    if url is not None:
        out.print(Text(url, style="underline"), soft_wrap=True)


def print_fields(out: Console, fields: Item) -> None:
    """Print a line per field that has a value."""
    lines = Table(box=None, show_header=False, pad_edge=False)
    lines.add_column(style="dim", no_wrap=True)
    lines.add_column(overflow="fold")
    for name, value in fields.items():
        if value not in (None, "", [], {}):
            lines.add_row(_label(name), cell(name, value))
    out.print(lines)


def table(items: Sequence[Item], columns: Mapping[str, Cell]) -> Table:
    """Return a table with a row per item."""
    rows = Table(box=None, header_style="dim", pad_edge=False)
    for number, name in enumerate(columns):
        rows.add_column(name, no_wrap=number == 0, overflow="fold")
    for item in items:
        rows.add_row(
            *(
                cell(name, column(item) if callable(column) else _at(item, column))
                for name, column in columns.items()
            )
        )
    return rows


def cell(name: str, value: Any) -> Text:
    """Return a value as people read it. Text of others is no markup."""
    if isinstance(value, Text):
        return value
    if name == "verdict":
        return show.verdict(value)
    return Text(_words(value))


def add_show(app: typer.Typer, noun: Noun, sentence: str) -> None:
    """Add the command `show`."""

    @app.command("show", help=sentence)
    def show_one(
        identity: str = typer.Argument(metavar=noun.key.upper(), help=f"Its {noun.key}."),
        as_json: bool = JSON,
    ) -> None:
        with Client() as client:
            record = client.call("GET", noun.of(identity))
            print_one(noun, record, as_json=as_json, url=_page(client, noun, record))


def add_remove(app: typer.Typer, noun: Noun, sentence: str, done: str) -> None:
    """Add the command `remove`, which is a DELETE; `done` says what it did, such as "archived"."""

    @app.command("remove", help=sentence)
    def remove(
        identity: str = typer.Argument(metavar=noun.key.upper(), help=f"Its {noun.key}."),
        as_json: bool = JSON,
    ) -> None:
        with Client() as client:
            record = client.call("DELETE", noun.of(identity))
        if as_json:
            show.print_json(record)
        else:
            print(f"{done} {identity}")


def stored(noun: Noun, client: Client, record: Item, done: str, *, as_json: bool) -> None:
    """Print what a command created or changed: one line with its key and its page."""
    url = _page(client, noun, record)
    if as_json:
        show.print_json(record if url is None else {**record, "url": url})
    else:
        line = "  ".join(filter(None, (f"{done} {record[noun.key]}", url)))
        show.console().print(line, markup=False, highlight=False, soft_wrap=True)


def pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """Return repeated NAME=VALUE as an object. Raises FieldError."""
    from gonogo.errors import FieldError

    for text in texts:
        if "=" not in text:
            raise FieldError(option, text, "has no =", limit="NAME=VALUE")
    return dict(text.partition("=")[::2] for text in texts)


def given(**fields: Any) -> dict[str, Any]:
    """Return the fields that were named on the command line; others stay as they are."""
    return {name: value for name, value in fields.items() if value not in (None, [], {})}


def _page(client: Client, noun: Noun, record: Item) -> str | None:
    return None if noun.page is None else client.url + noun.page(str(record[noun.key]))


def _at(item: Any, path: str) -> Any:
    for name in path.split("."):
        item = item.get(name) if isinstance(item, Mapping) else None
    return item


def _label(name: str) -> str:
    return name.replace("_", " ").removesuffix(" at")


def _words(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return show.number(value)
    if isinstance(value, str):
        return value[:19].replace("T", " ") + " UTC" if _TIME.match(value) else value
    if isinstance(value, Mapping):
        return ", ".join(
            f"{name}={json.dumps(item) if isinstance(item, dict | list) else _words(item)}"
            for name, item in value.items()
            if item is not None
        )
    if isinstance(value, list | tuple):
        if any(isinstance(item, dict) for item in value):
            return json.dumps(value)
        return ", ".join(map(_words, value))
    return str(value)

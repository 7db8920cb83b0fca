"""A noun of the API on the terminal: its list as a table, one of it as lines, both as JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import typer
from rich.text import Text

from gonogo.cli.kit import show
from gonogo.cli.kit.cells import Cell, Item, label, print_fields, table
from gonogo.cli.kit.client import Client, Refused
from gonogo.errors import JobError
from gonogo.fields import did_you_mean
from gonogo.spec.executors import EXECUTORS

JSON = typer.Option(False, "--json", help="Print JSON.")
LIMIT = typer.Option(50, "--limit", "-n", min=1, max=10_000, help="List at most this many.")
CURSOR = typer.Option(
    None, "--cursor", help="Go on where a list ended: `next` of the JSON, or the line below it."
)
_ENDS = ("revoked_at", "archived_at")
"""Times of what has ended, and is listed still."""
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
NAMED = {"build": "builds", "suite": "suites", "test": "tests", "schedule": "schedules"}
"""Filters of lists that name one of another noun."""
_HIDDEN = ("links",)


@dataclass(frozen=True)
class Noun:
    """Things of one kind, such as suites.

    Attributes:
        name: their name in addresses and commands, in the plural.
        columns: the columns of their list.
        words: what one of them is called in a sentence, such as "a suite".
        key: what names one of them on the command line.
        name_key: a field that names one of them as well, where only one has that name.
        page: from the key to the path of its page; None: it has none.
        parts: fields that hold a list of objects -> the columns of their table.
        path: their address in the API; default: /NAME.
        plural: what several of them are called in a sentence; default: their name.
        labels: field -> the label of each of its values, where they have labels.
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
    name_key: str | None = None
    plural: str = ""
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """Return the path of the list in the API."""
        return self.path or f"/{self.name}"

    @property
    def argument_help(self) -> str:
        """Return the help of the argument that names one of them."""
        return f"Its {self.key}{f' or {self.name_key}' if self.name_key else ''}."

    def address_of(self, client: Client, text: str) -> str:
        """Return the path in the API of the one with this key or name.

        Of several with a name, the only one that hasn't ended is meant. A name that none has is
        left to the server, which says so. Raises JobError for a misspelled name, and for one that
        several have.
        """
        if self.name_key is None or _ID.fullmatch(text):
            return self.of(text)
        items = list(client.pages(self.address))
        named = [item for item in items if item[self.name_key] == text]
        live = [item for item in named if all(item.get(end) is None for end in _ENDS)]
        named = live if len(live) == 1 else named
        if len(named) > 1:
            keys = ", ".join(str(item[self.key]) for item in named)
            raise JobError(f"{len(named)} {self.name} are called {text!r}: use an id: {keys}")
        if not named and (hint := did_you_mean(text, [item[self.name_key] for item in items])):
            raise JobError(f"there is no {self.name.removesuffix('s')} {text!r}{hint}")
        return self.of(str(named[0][self.key]) if named else text)

    def of(self, identity: str) -> str:
        """Return the path of one of them in the API."""
        return f"{self.address}/{_quoted(identity)}"


def print_list(
    noun: Noun, *, limit: int, cursor: str | None, as_json: bool, **filters: Any
) -> None:
    """Print a list of the server's: a table, or {"items": [...], "next": cursor or null}."""
    with Client() as client:
        if noun.is_paged:
            page = client.some(noun.address, limit=limit, cursor=cursor, **filters)
        else:
            page = client.call("GET", noun.address, **filters)
        unknown = () if page["items"] else _unknown(client, filters)
    if as_json:
        show.print_json({"items": page["items"], "next": page.get("next")})
        return
    errors = show.console(stderr=True)
    if page["items"]:
        show.console().print(table(page["items"], noun.columns))
    else:
        for sentence in (f"no {noun.plural or noun.name}", *unknown):
            errors.print(sentence, style="dim", markup=False, highlight=False, soft_wrap=True)
    if page.get("next"):
        errors.print(
            f"there are more: --cursor {page['next']}, or a larger --limit",
            style="dim",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


def _unknown(client: Client, filters: Item) -> list[str]:
    """Return what the server says about names in filters that it doesn't know.

    A misspelled name looks like one that has nothing.
    """
    sentences = []
    executor = filters.get("executor")
    if executor is not None and executor not in EXECUTORS:
        sentences.append(f"executor {executor!r} has none{did_you_mean(executor, EXECUTORS)}")
    for name, noun in NAMED.items():
        if filters.get(name) is not None:
            try:
                client.call("GET", f"/{noun}/{_quoted(str(filters[name]))}")
            except Refused as problem:
                sentences.append(str(problem))
    return sentences


def print_one(noun: Noun, record: Item, *, as_json: bool, url: str | None = None) -> None:
    """Print one record of the server's: a line per field, a table per part, its page."""
    if as_json:
        show.print_json(record if url is None else {**record, "url": url})
        return
    out = show.console()
    fields = {name: value for name, value in record.items() if name not in _HIDDEN}
    for name, labels in noun.labels.items():
        if fields.get(name) in labels:
            fields[name] = f"{labels[fields[name]]} ({fields[name]})"
    parts = {name: fields.pop(name) for name in noun.parts if fields.get(name)}
    print_fields(out, fields)
    for name, items in parts.items():
        out.print(Text(f"\n{label(name)}", style="bold"))
        out.print(table(items, noun.parts[name]))
    if url is not None:
        out.print(Text(url, style="underline"), soft_wrap=True)


def add_show(app: typer.Typer, noun: Noun, sentence: str) -> None:
    """Add the command `show`."""

    @app.command("show", help=sentence)
    def show_one(
        identity: str = typer.Argument(metavar=noun.key.upper(), help=noun.argument_help),
        as_json: bool = JSON,
    ) -> None:
        with Client() as client:
            record = client.call("GET", noun.address_of(client, identity))
            print_one(noun, record, as_json=as_json, url=_page(client, noun, record))


def add_remove(app: typer.Typer, noun: Noun, sentence: str, done: str) -> None:
    """Add the command `remove`, which is a DELETE; `done` says what it did, such as "archived"."""

    @app.command("remove", help=sentence)
    def remove(
        identity: str = typer.Argument(metavar=noun.key.upper(), help=noun.argument_help),
        as_json: bool = JSON,
    ) -> None:
        with Client() as client:
            record = client.call("DELETE", noun.address_of(client, identity))
        if as_json:
            show.print_json(record)
        else:
            print(f"{done} {identity}")


def stored(
    noun: Noun, client: Client, record: Item, done: str, *, as_json: bool, url: str | None = None
) -> None:
    """Print what a command created or changed: one line with its key and its page."""
    url = url or _page(client, noun, record)
    if as_json:
        show.print_json(record if url is None else {**record, "url": url})
    else:
        name = "" if noun.name_key is None else f"{record[noun.name_key]}  "
        line = "  ".join(filter(None, (f"{done} {name}{record[noun.key]}", url)))
        show.console().print(line, markup=False, highlight=False, soft_wrap=True)


def pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """Return repeated NAME=VALUE as an object. Raises FieldError."""
    from gonogo.errors import FieldError

    for text in texts:
        if not text.partition("=")[0] or "=" not in text:
            reason = "has no name" if "=" in text else "has no ="
            raise FieldError(option, text, reason, limit="NAME=VALUE")
    return dict(text.partition("=")[::2] for text in texts)


def changed(command: str, **fields: Any) -> dict[str, Any]:
    """Return the fields that a command changes. Raises JobError where none was named."""
    body = given(**fields)
    if not body:
        raise JobError(f"nothing to change: name an option ({command} --help)")
    return body


def given(**fields: Any) -> dict[str, Any]:
    """Return the fields that were named on the command line; others stay as they are."""
    return {name: value for name, value in fields.items() if value not in (None, [], {})}


def _quoted(identity: str) -> str:
    from urllib.parse import quote

    return quote(identity, safe="/@+:")


def _page(client: Client, noun: Noun, record: Item) -> str | None:
    return None if noun.page is None else client.url + noun.page(str(record[noun.key]))

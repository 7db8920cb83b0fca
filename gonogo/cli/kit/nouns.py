"""The command of a noun: `gonogo NOUN list|show|create|change|remove`, made from its declaration.

Its options are the filters of its list and the fields of its bodies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import typer
from rich.text import Text

from gonogo.cli.kit import show
from gonogo.cli.kit.body_options import JSON, Options, body_of, signed, with_options
from gonogo.cli.kit.cells import Item, label, print_fields, table
from gonogo.cli.kit.client import Client, Refused
from gonogo.cli.kit.groups import group
from gonogo.cli.kit.noun import Noun, Verb
from gonogo.errors import JobError
from gonogo.fields import did_you_mean
from gonogo.spec.executors import EXECUTORS

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
_NEEDS = {"admin": " Needs the scope admin."}


Prepare = Callable[[str, dict[str, Any]], dict[str, Any]]


def app_of(
    noun: Noun,
    *,
    print_one: Callable[..., None] | None = None,
    prepare: Prepare = lambda _verb, options: options,
    more: Mapping[str, Options] | None = None,
) -> typer.Typer:
    """Return the group of a noun's commands: those that its declaration has.

    print_one: shows one in its own way, `print_one(client, record, as_json=...)`. prepare: returns
    the filters of `list`, or the fields for `create` and `change`, of the options that were given.
    more: verb -> options that are no fields.
    """
    app, more = group(noun.about), more or {}
    needs = _NEEDS.get(noun.scope, "")
    if noun.key != "id":
        order = f"List {noun.several} by {noun.key}."
    else:
        order = f"List the newest {noun.several}." if noun.is_paged else f"List all {noun.several}."
    app.command("list", help=order + needs)(_list_command(noun, prepare))
    app.command("show", help=f"Show {noun.words}.{needs}")(_show_command(noun, print_one))
    for name, verb, command in (
        ("create", noun.create, _create_command),
        ("change", noun.change, _change_command),
        ("remove", noun.remove, _remove_command),
    ):
        if verb is not None and verb.command:
            function = command(noun, verb, prepare, more.get(name, {}))
            app.command(name, help=verb.sentence + _NEEDS.get(verb.scope, ""))(function)
    for name, verb in noun.actions.items():
        function = _action_command(noun, name, verb)
        app.command(name, help=verb.sentence + _NEEDS.get(verb.scope, ""))(function)
    return app


def _list_command(noun: Noun, prepare: Prepare) -> Callable[..., None]:
    def list_(as_json: bool, limit: int = 1, cursor: str | None = None, **filters: Any) -> None:
        for name in noun.defaults:
            filters[name] = None if filters[name] == "any" else filters[name]
        chosen = prepare("list", filters)
        print_list(noun, limit=limit, cursor=cursor, as_json=as_json, **chosen)

    options = {
        name: (bool, typer.Option(False, f"--{name}", help=text))
        if noun.kinds.get(name) is bool
        else (str | None, typer.Option(noun.defaults.get(name), f"--{name}", help=text))
        for name, text in noun.filters.items()
    }
    paging = {"limit": (int, LIMIT), "cursor": (str | None, CURSOR)} if noun.is_paged else {}
    return signed(list_, {**options, **paging, "as_json": (bool, JSON)})


def _show_command(noun: Noun, print_own: Callable[..., None] | None) -> Callable[..., None]:
    def show_(identity: str, as_json: bool) -> None:
        with Client() as client:
            record = client.call("GET", address_of(noun, client, identity))
            if print_own is not None:
                print_own(client, record, as_json=as_json)
                return
            print_one(noun, record, as_json=as_json, url=_page(client, noun, record))

    return signed(show_, {"identity": _identity(noun), "as_json": (bool, JSON)})


def _create_command(noun: Noun, verb: Verb, prepare: Prepare, more: Options) -> Callable[..., None]:
    def create(as_json: bool, **options: Any) -> None:
        with Client() as client:
            body = body_of(verb, prepare("create", options))
            record = client.call("POST", noun.address, body=body)
            stored(noun, client, record, verb, as_json=as_json)

    return with_options(create, verb, more)


def _change_command(noun: Noun, verb: Verb, prepare: Prepare, more: Options) -> Callable[..., None]:
    def change(identity: str, as_json: bool, **options: Any) -> None:
        body = body_of(verb, prepare("change", options))
        if not body:
            raise JobError(f"nothing to change: name an option (gonogo {noun.name} change --help)")
        with Client() as client:
            record = client.call("PATCH", address_of(noun, client, identity), body=body)
            stored(noun, client, record, verb, as_json=as_json)

    return with_options(change, verb, {"identity": _identity(noun), **more}, is_change=True)


def _remove_command(
    noun: Noun, verb: Verb, _prepare: Prepare, _more: Options
) -> Callable[..., None]:
    def remove(identity: str, as_json: bool) -> None:
        with Client() as client:
            record = client.call("DELETE", address_of(noun, client, identity))
        if as_json:
            show.print_json(record)
        else:
            print(f"{verb.done} {identity}")

    return signed(remove, {"identity": _identity(noun), "as_json": (bool, JSON)})


def _action_command(noun: Noun, name: str, verb: Verb) -> Callable[..., None]:
    def act(identity: str, as_json: bool, **options: Any) -> None:
        with Client() as client:
            path = f"{address_of(noun, client, identity)}:{verb.path or name}"
            body = None if verb.body is None else body_of(verb, options)
            stored(noun, client, client.call("POST", path, body=body), verb, as_json=as_json)

    before = {"identity": _identity(noun)}
    if verb.body is None:
        return signed(act, {**before, "as_json": (bool, JSON)})
    return with_options(act, verb, before)


def _identity(noun: Noun) -> tuple[Any, Any]:
    return str, typer.Argument(metavar=noun.key.upper(), help=noun.argument_help)


def address_of(noun: Noun, client: Client, text: str) -> str:
    """Return the path in the API of the one with this key or name.

    Of several with a name, the only one that hasn't ended is meant. A name that none has is left to
    the server, which says so. Raises JobError for a misspelled name, and for one that several have.
    """
    if noun.name_key is None or _ID.fullmatch(text):
        return noun.of(text)
    items = list(client.pages(noun.address))
    named = [item for item in items if item[noun.name_key] == text]
    live = [item for item in named if all(item.get(end) is None for end in _ENDS)]
    named = live if len(live) == 1 else named
    if len(named) > 1:
        keys = ", ".join(str(item[noun.key]) for item in named)
        raise JobError(f"{len(named)} {noun.name} are called {text!r}: use an id: {keys}")
    if not named and (hint := did_you_mean(text, [item[noun.name_key] for item in items])):
        raise JobError(f"there is no {noun.one} {text!r}{hint}")
    return noun.of(str(named[0][noun.key]) if named else text)


def print_list(
    noun: Noun, *, limit: int, cursor: str | None, as_json: bool, **filters: Any
) -> None:
    """Print a list of the server's: a table, or {"items": [...], "next": cursor or null}."""
    if filters.get("verdict"):
        filters["verdict"] = show.verdict_value(filters["verdict"])
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
        for sentence in (f"no {noun.several}", *unknown):
            show.say(errors, sentence, style="dim")
    if page.get("next"):
        more = f"there are more: --cursor {page['next']}, or a larger --limit"
        show.say(errors, more, style="dim")


def _unknown(client: Client, filters: Item) -> list[str]:
    """Return the server's warning about names in filters that it doesn't know.

    A misspelled name looks like one that has nothing.
    """
    sentences = []
    executor = filters.get("executor")
    if executor is not None and executor not in EXECUTORS:
        sentences.append(f"executor {executor!r} has none{did_you_mean(executor, EXECUTORS)}")
    for name, noun in NAMED.items():
        if filters.get(name) is not None:
            try:
                client.call("GET", f"/{noun}/{quote(str(filters[name]), safe='/@+:')}")
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


def stored(noun: Noun, client: Client, record: Item, verb: Verb, *, as_json: bool) -> None:
    """Print what a command did: what the verb says, or one line with the key and the page."""
    url = _page(client, noun, record)
    if as_json:
        show.print_json(record if url is None else {**record, "url": url})
        return
    if verb.template:
        state = show.state(str(record.get("state")))
        text = verb.template.format_map({**record, "state": state, "server": client.url})
    else:
        name = "" if noun.name_key is None else f"{record[noun.name_key]}  "
        text = f"{verb.done} {name}{record[noun.key]}"
    show.say(show.console(), "  ".join(filter(None, (text, url))))
    if record.get("secret"):
        print(f"The secret is shown this once: {record['secret']}")


def _page(client: Client, noun: Noun, record: Item) -> str | None:
    return None if noun.page is None else client.url + noun.page(str(record[noun.key]))

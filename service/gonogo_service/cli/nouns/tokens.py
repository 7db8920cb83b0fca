"""`gonogo tokens`: bearer tokens. The first one is made beside the server's database."""

from __future__ import annotations

import sys
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import typer

import gonogo.settings
from gonogo.cli.kit import cells, nouns, show
from gonogo.cli.kit.client import Client
from gonogo.cli.kit.groups import group
from gonogo.cli.kit.nouns import CURSOR, JSON, LIMIT, Noun
from gonogo.errors import JobError

TOKENS = Noun(
    "tokens",
    {
        "token": "id",
        "name": "name",
        "begins with": "prefix",
        "scopes": "scopes",
        "builds": "builds",
        "branches": "branches",
        "repositories": "repositories",
        "suites": "suites",
        "created": "created_at",
        "expires": "expires_at",
        "last used": "last_used_at",
        "revoked": "revoked_at",
    },
    "a token",
    name_key="name",
)

app = group(
    "Make bearer tokens, list, rotate and revoke them.\n\nA token's rights can't be changed: make"
    " another one, and remove the first."
)
DAYS = typer.Option(
    None, "--days", min=0, help="Days until it ends, 0 for never; default: GONOGO_TOKEN_DAYS."
)


class Scope(StrEnum):
    """A token's scope; each contains those before it."""

    read = "read"
    submit = "submit"
    admin = "admin"


@app.command("list")
def list_(limit: int = LIMIT, cursor: str | None = CURSOR, as_json: bool = JSON) -> None:
    """List the newest tokens, revoked ones as well. Needs the scope admin."""
    nouns.print_list(TOKENS, limit=limit, cursor=cursor, as_json=as_json)


nouns.add_show(app, TOKENS, "Show a token without its text. Needs the scope admin.")


@app.command()
def create(
    name: str = typer.Option(..., help="Whose token it is, or what for; shown in logs and lists."),
    scope: list[Scope] = typer.Option(
        [Scope.read],
        "--scope",
        help="Repeatable: read, submit (contains read), admin (contains all).",
    ),
    build: list[str] = typer.Option(
        [],
        "--build",
        help="Pattern of build names that it may register with the scope submit, such as "
        "'kernels-*'; repeatable; default: none.",
    ),
    branch: list[str] = typer.Option(
        [],
        "--branch",
        help="Pattern of branches that it may register builds of; repeatable; default: any.",
    ),
    repository: list[str] = typer.Option(
        [],
        "--repository",
        help="Limit it to jobs and runs of commits of such repositories, such as 'org/*'; "
        "repeatable; default: no limit.",
    ),
    suite: list[str] = typer.Option(
        [],
        "--suite",
        help="Limit it to runs of suites of such names; repeatable; default: no limit.",
    ),
    days: int | None = DAYS,
    as_json: bool = JSON,
) -> None:
    """Make a token and print it: it is shown this once, only its keyed hash is stored.

    With GONOGO_TOKEN the server makes it (scope admin); without, it is made beside the database.
    """
    body: dict[str, Any] = {
        "name": name,
        "scopes": [one.value for one in scope],
        "builds": build,
        "branches": branch,
        "repositories": repository,
        "suites": suite,
    } | _life(days)
    if gonogo.settings.load().token is not None:
        with Client() as client:
            issued = client.call("POST", TOKENS.address, body=body)
    else:
        issued = _beside_the_database(lambda session, module: module.issue_token(session, **body))
    _print(issued, as_json)


@app.command()
def rotate(
    token: str = typer.Argument(help="The ID or name of the token to replace."),
    overlap_hours: float = typer.Option(
        24.0, "--overlap-hours", min=0, help="The old token stays valid this long; 0: it ends now."
    ),
    days: int | None = DAYS,
    as_json: bool = JSON,
) -> None:
    """Make a token with the same rights and print it; the old one ends after the overlap.

    With GONOGO_TOKEN the server makes it (scope admin); without, it is made beside the database.
    """
    body = {"overlap_hours": overlap_hours} | _life(days)
    if gonogo.settings.load().token is not None:
        with Client() as client:
            issued = client.call("POST", f"{TOKENS.address_of(client, token)}:rotate", body=body)
    else:
        issued = _beside_the_database(
            lambda session, module: module.rotate_token(session, _id(session, token), **body)
        )
    _print(issued, as_json)


nouns.add_remove(
    app, TOKENS, "Revoke a token, and end its logins. Needs the scope admin.", "revoked"
)


def _life(days: int | None) -> dict[str, Any]:
    return {} if days is None else {"days": days or None}


def _print(issued: dict[str, Any], as_json: bool) -> None:
    if as_json:
        show.print_json(issued)
        return
    end = issued["expires_at"]
    after = f"{cells.words(end)}; `gonogo tokens rotate {issued['id']}` makes the next one"
    print(f"ends {after if end else 'never'}", file=sys.stderr)
    print(issued["token"])


def _id(session: Any, text: str) -> str:
    """Return the ID of the only valid token with this name; any other text as it is."""
    from gonogo_service.kit.database.encoding import utcnow
    from gonogo_service.people import store as tokens

    named = [item.id for item in tokens.named(session, text) if item.valid(utcnow())]
    if len(named) > 1:
        raise JobError(f"{len(named)} tokens are called {text!r}: use an id: {', '.join(named)}")
    return named[0] if named else text


def _beside_the_database(make: Callable[[Any, Any], str | None]) -> dict[str, Any]:
    from gonogo_service.cli.operate.database import engine
    from gonogo_service.kit.database.encoding import decode, encode
    from gonogo_service.kit.database.engine import session
    from gonogo_service.kit.problems import Problem
    from gonogo_service.people import auth, issuing
    from gonogo_service.people import store as tokens

    with engine() as database, session(database) as transaction:
        try:
            text = make(transaction, issuing)
            if text is None:
                raise JobError("there is no such token; `gonogo tokens list` has their IDs")
            stored = tokens.by_hash(transaction, auth.own_keys().digest("token", text))
            record: dict[str, Any] = decode(encode(stored))
            return record | {"token": text}
        except (Problem, ValueError) as problem:
            raise JobError(str(problem)) from problem

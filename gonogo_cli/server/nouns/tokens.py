"""`gonogo tokens`: bearer tokens. The first one is made beside the server's database."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import typer

import gonogo_settings
from gonogo.errors import JobError
from gonogo_cli.kit import nouns, show
from gonogo_cli.kit.client import Client
from gonogo_cli.kit.groups import group
from gonogo_cli.kit.nouns import CURSOR, JSON, LIMIT, Noun

TOKENS = Noun(
    "tokens",
    {
        "token": "id",
        "name": "name",
        "begins with": "prefix",
        "scopes": "scopes",
        "builds": "builds",
        "branches": "branches",
        "created": "created_at",
        "last used": "last_used_at",
        "revoked": "revoked_at",
    },
    "a token",
)

app = group("Make bearer tokens, list and revoke them.")


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
    as_json: bool = JSON,
) -> None:
    """Make a token and print it: it is shown this once, only its keyed hash is stored.

    With GONOGO_TOKEN the server makes it (scope admin); without, it is made beside the database.
    """
    scopes = [one.value for one in scope]
    if gonogo_settings.load().token is not None:
        body: dict[str, Any] = {"name": name, "scopes": scopes, "builds": build, "branches": branch}
        with Client() as client:
            text = client.call("POST", TOKENS.address, body=body)["token"]
    else:
        text = _beside_the_database(name, scopes, build, branch)
    if as_json:
        token = {"token": text, "name": name, "scopes": scopes, "builds": build, "branches": branch}
        show.print_json(token)
    else:
        print(text)


nouns.add_remove(
    app, TOKENS, "Revoke a token, and end its logins. Needs the scope admin.", "revoked"
)


def _beside_the_database(
    name: str, scopes: list[str], builds: list[str], branches: list[str]
) -> str:
    from gonogo_cli.operate.database import engine
    from gonogo_service.access.auth import issue_token
    from gonogo_service.kit.problems import Problem
    from gonogo_storage.db.engine import session

    with engine() as database, session(database) as transaction:
        try:
            return issue_token(transaction, name, scopes, builds=builds, branches=branches)
        except (Problem, ValueError) as problem:
            raise JobError(str(problem)) from problem

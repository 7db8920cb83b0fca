"""`gonogo token create`: make bearer tokens beside the server's database.

The first token has to come from there.
"""

from __future__ import annotations

from enum import StrEnum

import typer

from gonogo.errors import JobError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Make bearer tokens.",
)


class Scope(StrEnum):
    """A token's scope; each contains those before it."""

    read = "read"
    submit = "submit"
    admin = "admin"


@app.callback()
def root() -> None:
    """Make bearer tokens."""


@app.command()
def create(
    name: str = typer.Option(..., help="Whose token it is, or what for; shown in logs and lists."),
    scope: list[Scope] = typer.Option(
        [Scope.read],
        "--scope",
        help="Repeatable: read, submit (contains read), admin (contains all).",
    ),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Make a token and print it: it is shown this once, only its keyed hash is stored."""
    from gonogo_cli.kit import show
    from gonogo_cli.operate.database import engine
    from gonogo_service.access.auth import issue_token
    from gonogo_service.kit.problems import Problem
    from gonogo_storage.db.engine import session

    with engine() as database, session(database) as transaction:
        try:
            text = issue_token(transaction, name, [one.value for one in scope])
        except (Problem, ValueError) as problem:
            raise JobError(str(problem)) from problem
    if as_json:
        show.print_json({"token": text, "name": name, "scopes": [one.value for one in scope]})
    else:
        print(text)

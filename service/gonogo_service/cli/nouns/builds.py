"""`gonogo builds`: names of what is tested. A device host's builds file says what a name means."""

from __future__ import annotations

import typer

from gonogo.cli.kit import nouns
from gonogo.cli.kit.client import Client
from gonogo.cli.kit.groups import group
from gonogo.cli.kit.nouns import CURSOR, JSON, LIMIT, Noun

BUILDS = Noun(
    "builds",
    {
        "name": "name",
        "executor": "executor",
        "branch": "branch",
        "sequence": "sequence",
        "commit": "commit",
        "arithmetic": "arithmetic",
        "outputs": "outputs",
        "registered": "created_at",
    },
    "a build",
    key="name",
)

app = group(
    "Register builds, and look at them.\n\nA build can't be changed: a name's meaning never"
    " changes. Remove it while it has no jobs, and register it again."
)


@app.command("list")
def list_(
    executor: str | None = typer.Option(None, help="List only builds of this executor."),
    branch: str | None = typer.Option(None, help="List only builds of this branch."),
    limit: int = LIMIT,
    cursor: str | None = CURSOR,
    as_json: bool = JSON,
) -> None:
    """List the built-in builds and the registered ones by name."""
    filters = {"executor": executor, "branch": branch}
    nouns.print_list(BUILDS, limit=limit, cursor=cursor, as_json=as_json, **filters)


nouns.add_show(app, BUILDS, "Show a build.")


@app.command()
def create(
    name: str = typer.Argument(help="Its name, such as kernels-5f3a9c2."),
    executor: str = typer.Option(..., help="The executor that runs it, such as ttnn."),
    branch: str | None = typer.Option(
        None, help="The series that it is part of; default: default."
    ),
    sequence: int | None = typer.Option(
        None, min=0, help="Its place in the branch; default: after all others."
    ),
    commit: str | None = typer.Option(None, help="The commit that it was made of."),
    arithmetic: str | None = typer.Option(
        None, help="Arithmetic of its kernels; default: it is found for each output."
    ),
    output: list[str] = typer.Option(
        [], "--output", help="An output that it produces; repeatable; default: all."
    ),
    new_executor: bool = typer.Option(
        False,
        "--new-executor",
        help="Accept an executor that the server hasn't heard of, such as a plug-in that a device "
        "host will serve.",
    ),
    as_json: bool = JSON,
) -> None:
    """Register a build. Registering the same build again changes nothing.

    A token with the scope submit may register the names that it was made for.
    """
    body = nouns.given(
        branch=branch,
        sequence=sequence,
        commit=commit,
        arithmetic=arithmetic,
        outputs=output,
        new_executor=new_executor or None,
    )
    with Client() as client:
        record = client.call(
            "POST", BUILDS.address, body={"name": name, "executor": executor, **body}
        )
        nouns.stored(BUILDS, client, record, "registered", as_json=as_json)


nouns.add_remove(app, BUILDS, "Remove a build that no job has. Needs the scope admin.", "removed")

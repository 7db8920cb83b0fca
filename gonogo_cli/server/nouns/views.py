"""`gonogo views`: saved filters of the pages' lists."""

from __future__ import annotations

import typer

from gonogo import urls
from gonogo_cli.kit import nouns
from gonogo_cli.kit.client import Client
from gonogo_cli.kit.groups import group
from gonogo_cli.kit.nouns import JSON, Noun

VIEWS = Noun(
    "views",
    {
        "view": "id",
        "page": "page",
        "name": "name",
        "query": "query",
        "saved by": "created_by",
        "updated": "updated_at",
    },
    "a view",
    name_key="name",
    is_paged=False,
)
PAGES = "devices, flags, jobs, matrix or tests"

app = group("Save filters of the pages' lists under a name, for everybody.")


@app.command("list")
def list_(
    page: str | None = typer.Option(None, help=f"List only views of this page: {PAGES}."),
    as_json: bool = JSON,
) -> None:
    """List the saved views by page and name."""
    nouns.print_list(VIEWS, limit=0, cursor=None, as_json=as_json, page=page)


nouns.add_show(app, VIEWS, "Show a view.")


@app.command()
def create(
    name: str = typer.Argument(help="What it is called, such as 'hollow on main'."),
    page: str = typer.Option(..., help=f"The page that it filters: {PAGES}."),
    query: str = typer.Option(
        ..., help="The filters of the page's address: what follows the question mark."
    ),
    as_json: bool = JSON,
) -> None:
    """Save a view. A view of this page with the same name is replaced."""
    body = {"name": name, "page": page, "query": query}
    with Client() as client:
        record = client.call("POST", VIEWS.address, body=body)
        address = client.url + urls.view(record["page"], record["query"])
        nouns.stored(VIEWS, client, record, "saved", as_json=as_json, url=address)


nouns.add_remove(app, VIEWS, "Delete a view, for everybody.", "deleted")

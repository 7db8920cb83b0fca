"""`gonogo waiver`: accept until a date what `gonogo compare` would block a commit for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import typer
from rich.table import Table
from rich.text import Text

from gonogo.errors import FieldError
from gonogo_cli.kit import show
from gonogo_cli.kit.client import Client
from gonogo_cli.server.jobs import JSON

DAYS = 14.0
"""Long enough for a fix, short enough that someone looks again."""

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Accept findings about tests until a date.",
)


@app.callback()
def root() -> None:
    """Accept findings until a date, so that they block no commit. Verdicts stay as they are."""


@app.command()
def add(
    reason: str = typer.Option(..., "--reason", help="Why the finding is accepted."),
    test: str | None = typer.Option(None, "--test", help="Key of the test (v1-...)."),
    name: list[str] = typer.Option(
        [],
        "--name",
        help="Pattern of names as `gonogo compare` shows them; repeatable; ! takes back.",
    ),
    label: list[str] = typer.Option(
        [], "--label", help="name=value of the test's jobs; repeatable."
    ),
    build: list[str] = typer.Option(
        [], "--build", help="Pattern of head's build; repeatable; default: any."
    ),
    kind: list[str] = typer.Option(
        [], "--class", help="Class to waive; repeatable; default: all that are red or hollow."
    ),
    owner: str | None = typer.Option(None, help="Who looks after it; default: the token's name."),
    days: float = typer.Option(DAYS, min=0.01, max=3650, help="For how long."),
    expires: str | None = typer.Option(
        None, help="Instead of --days: a date or a time in UTC, 2026-12-31 or 2026-12-31T12:00."
    ),
    as_json: bool = JSON,
) -> None:
    """Waive classes of some tests until a date.

    A test must match each of --test, --name and --label that is given.
    """
    body: dict[str, Any] = {
        "test": test,
        "names": name,
        "labels": dict(pair.partition("=")[::2] for pair in label),
        "builds": build,
        "reason": reason,
        "owner": owner,
        "expires": _end(days, expires).isoformat(),
        **({"classes": kind} if kind else {}),
    }
    with Client() as client:
        waiver = client.call("POST", "/waivers", body=body)
    if as_json:
        show.print_json(waiver)
    else:
        print(f"{waiver['id']}  {about(waiver)}: {waiver['words']}")


@app.command("list")
def list_(
    test: str | None = typer.Option(None, "--test", help="Key of a test: what concerns it."),
    state: str = typer.Option("active", help="active, expired, ended, or any."),
    most: int = typer.Option(50, "-n", "--most", min=1, max=1000, help="How many at most."),
    as_json: bool = JSON,
) -> None:
    """List the newest waivers."""
    with Client() as client:
        items = list(
            client.pages(
                "/waivers",
                most=most,
                limit=min(most, 500),
                test=test,
                state=None if state == "any" else state,
            )
        )
    if as_json:
        show.print_json(items)
        return
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in ("id", "state", "tests", "until", "owner", "reason"):
        table.add_column(column)
    for item in items:
        cells = (
            item["id"],
            item["state"],
            about(item),
            item["expires_at"][:16],
            item["owner"],
            item["reason"],
        )
        table.add_row(*(Text(cell) for cell in cells))  # text of others is no markup
    show.console().print(table)


@app.command()
def end(waiver: str = typer.Argument(help="Its id."), as_json: bool = JSON) -> None:
    """End a waiver now."""
    with Client() as client:
        ended = client.call("DELETE", f"/waivers/{waiver}")
    if as_json:
        show.print_json(ended)
    else:
        print(f"{ended['id']}  {about(ended)}: {ended['state']}")


def about(waiver: dict[str, Any]) -> str:
    """Return which tests a waiver covers, in a few words."""
    labels = [f"{name}={value}" for name, value in waiver["labels"].items()]
    parts = [
        *filter(None, [waiver["test"]]),
        *waiver["names"],
        *labels,
        *(f"on {build}" for build in waiver["builds"]),
    ]
    return ", ".join(parts)


def _end(days: float, expires: str | None) -> datetime:
    if expires is None:
        return datetime.now(UTC) + timedelta(days=days)
    try:
        end = datetime.fromisoformat(expires)
    except ValueError:
        raise FieldError(
            "expires", expires, "is no time", limit="such as 2026-12-31 or 2026-12-31T12:00"
        ) from None
    return end if end.tzinfo else end.replace(tzinfo=UTC)

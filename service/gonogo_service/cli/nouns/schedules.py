"""`gonogo schedules`: suites that run at the times of a cron line."""

from __future__ import annotations

from typing import Any

import typer

from gonogo import urls
from gonogo.cli.kit import nouns, show
from gonogo.cli.kit.client import Client
from gonogo.cli.kit.groups import group
from gonogo.cli.kit.nouns import CURSOR, JSON, LIMIT, Noun

SCHEDULES = Noun(
    "schedules",
    {
        "schedule": "id",
        "name": "name",
        "suite": "suite",
        "cron": "cron",
        "timezone": "timezone",
        "paused": "paused",
        "next": "next_at",
        "last": lambda schedule: schedule["last"][0]["outcome"] if schedule["last"] else None,
    },
    "a schedule",
    name_key="name",
    parts={"last": {"due": "due_at", "outcome": "outcome", "run": "run", "reason": "reason"}},
)
SUITE = typer.Option(None, help="Name of the stored suite to run.")
CRON = typer.Option(None, help="Minute, hour, day of month, month, day of week: '30 2 * * *'.")
TIMEZONE = typer.Option(None, help="IANA time zone, such as Europe/Berlin; default UTC.")
OVERLAP = typer.Option(
    None, help="skip: start no run while the last one is open (default); allow: start one anyway."
)
BUILD = typer.Option([], "--build", help="Build to run; repeatable; default: the suite's builds.")
LABEL = typer.Option([], "--label", help="NAME=VALUE of its runs; repeatable.")

app = group("Run suites at the times of a cron line.")


@app.command("list")
def list_(
    suite: str | None = typer.Option(None, help="List only schedules of this suite."),
    limit: int = LIMIT,
    cursor: str | None = CURSOR,
    as_json: bool = JSON,
) -> None:
    """List the schedules in use."""
    nouns.print_list(SCHEDULES, limit=limit, cursor=cursor, as_json=as_json, suite=suite)


nouns.add_show(app, SCHEDULES, "Show a schedule with its next times and its last ones.")


@app.command()
def create(
    name: str = typer.Argument(help="What it is called, such as 'every night'."),
    suite: str = typer.Option(..., help="Name of the stored suite to run."),
    cron: str = typer.Option(
        ..., help="Minute, hour, day of month, month, day of week: '30 2 * * *'."
    ),
    timezone: str | None = TIMEZONE,
    overlap: str | None = OVERLAP,
    build: list[str] = BUILD,
    label: list[str] = LABEL,
    paused: bool = typer.Option(False, "--paused", help="Create it paused."),
    as_json: bool = JSON,
) -> None:
    """Create a schedule."""
    body: dict[str, Any] = {"name": name, "suite": suite, "cron": cron, "paused": paused}
    body |= nouns.given(
        timezone=timezone, overlap=overlap, builds=build, labels=nouns.pairs(label, "--label")
    )
    with Client() as client:
        record = client.call("POST", SCHEDULES.address, body=body)
        nouns.stored(SCHEDULES, client, record, "created", as_json=as_json)


@app.command()
def change(
    schedule: str = typer.Argument(help=SCHEDULES.argument_help),
    name: str | None = typer.Option(None, help="Give it another name."),
    suite: str | None = SUITE,
    cron: str | None = CRON,
    timezone: str | None = TIMEZONE,
    overlap: str | None = OVERLAP,
    build: list[str] = BUILD,
    label: list[str] = LABEL,
    pause: bool | None = typer.Option(None, "--pause/--resume", help="Pause it, or go on."),
    as_json: bool = JSON,
) -> None:
    """Change a schedule. What you don't name stays."""
    body = nouns.changed(
        "gonogo schedules change",
        name=name,
        suite=suite,
        cron=cron,
        timezone=timezone,
        overlap=overlap,
        builds=build,
        labels=nouns.pairs(label, "--label"),
        paused=pause,
    )
    with Client() as client:
        record = client.call("PATCH", nouns.address_of(SCHEDULES, client, schedule), body=body)
        nouns.stored(SCHEDULES, client, record, "changed", as_json=as_json)


nouns.add_remove(app, SCHEDULES, "Archive a schedule. Its runs stay.", "archived")


@app.command()
def run(schedule: str = typer.Argument(help=SCHEDULES.argument_help), as_json: bool = JSON) -> None:
    """Start a run now, even if the schedule is paused."""
    with Client() as client:
        record = client.call("POST", f"{nouns.address_of(SCHEDULES, client, schedule)}:run-now")
        url = client.url + urls.run(record["id"])
    if as_json:
        show.print_json({**record, "url": url})
    else:
        print(f"started {record['id']}  {url}")

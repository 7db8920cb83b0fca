"""`gonogo schedules`: suites that run at the times of a cron line."""

from __future__ import annotations

import typer

from gonogo import urls
from gonogo.cli.kit import nouns, show
from gonogo.cli.kit.body_options import JSON
from gonogo.cli.kit.client import Client
from gonogo_service.schedules.noun import SCHEDULES

app = nouns.app_of(SCHEDULES)


@app.command()
def run(schedule: str = typer.Argument(help=SCHEDULES.argument_help), as_json: bool = JSON) -> None:
    """Start a run now, even if the schedule is paused."""
    with Client() as client:
        address = nouns.address_of(SCHEDULES, client, schedule)
        record = client.call("POST", f"{address}:run-now")
        url = client.url + urls.run(record["id"])
    if as_json:
        show.print_json({**record, "url": url})
    else:
        print(f"started {record['id']}  {url}")

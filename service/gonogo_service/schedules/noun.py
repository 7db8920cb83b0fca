"""Schedules as the API and the command know them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gonogo.cli.kit.noun import Noun, Verb
from gonogo_service.kit.strict import Builds, Labels, Strict
from gonogo_service.suites.noun import SuiteName

Title = Annotated[
    str, Field(min_length=1, max_length=200, description="What it is called: 'every night'")
]
Suite = Annotated[SuiteName, Field(description="Name of the stored suite to run")]
Cron = Annotated[
    str,
    Field(
        min_length=1,
        max_length=200,
        description="Minute, hour, day of month, month, day of week: '30 2 * * *'",
    ),
]


class ScheduleIn(Strict):
    """A schedule."""

    name: Title
    suite: Suite
    cron: Cron
    timezone: str = Field(
        "UTC",
        min_length=1,
        max_length=100,
        description="A name of the IANA database, such as Europe/Berlin; default: UTC",
    )
    overlap: Literal["skip", "allow"] = Field(
        "skip",
        description="skip: no run while the last one is open (default); allow: run anyway",
    )
    builds: Builds = Field([], description="Builds to run; empty: the suite's builds")
    labels: Labels = Field({}, description="Labels of its runs")
    paused: bool = Field(False, description="It starts no run until it goes on")


class ScheduleChange(ScheduleIn):
    """The fields to change; omitted fields stay."""

    name: Title = ""
    suite: Suite = ""
    cron: Cron = ""


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
    filters={"suite": "List only schedules of this suite."},
    create=Verb("created", "Create a schedule.", ScheduleIn, positional=("name",)),
    change=Verb(
        "changed",
        "Change a schedule. What you don't name stays.",
        ScheduleChange,
        options={"paused": "--pause/--resume"},
    ),
    remove=Verb("archived", "Archive a schedule. Its runs stay."),
    actions={
        "run": Verb(
            "started",
            "Start a run now, even if the schedule is paused.",
            template="started {id}  {server}/runs/{id}",
            path="run-now",
        )
    },
    parts={"last": {"due": "due_at", "outcome": "outcome", "run": "run", "reason": "reason"}},
)

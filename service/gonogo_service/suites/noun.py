"""Suites and runs as the API and the command know them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gonogo import urls
from gonogo.cli.kit.noun import Noun, Verb
from gonogo.spec.suites import MAX_NAME
from gonogo_service.kit.database.states import RunState
from gonogo_service.kit.strict import NAME

MAX_TEXT = 200_000
"""Characters of a suite's file that are stored."""
FORMS = ".yaml", ".yml", ".json"
"""The ends of the names of files whose text is stored."""
OF_A_RUN = "labels", "commit"
"""Fields of a suite file that only a run has."""
SuiteName = Annotated[str, Field(pattern=NAME, max_length=MAX_NAME)]
SUITES = Noun(
    "suites",
    {
        "name": "name",
        "version": "version",
        "tests": "tests",
        "builds": "builds",
        "owner": "owner",
        "updated": "updated_at",
        "archived": "archived_at",
    },
    "a suite",
    key="name",
    filters={"archived": "List archived suites as well."},
    kinds={"archived": bool},
    create=Verb("stored", "Store a suite.", command=False),
    remove=Verb(
        "archived", "Archive a suite: it starts no more runs. Push it again to restore it."
    ),
    parts={"tests": {"test": "name", "kernel": "kernel", "seeds": "seeds", "key": "test_key"}},
)
RUNS = Noun(
    "runs",
    {
        "run": "id",
        "suite": "suite.name",
        "builds": "builds",
        "state": "state",
        "jobs": lambda run: f"{run['jobs']['ended']}/{run['jobs']['total']}",
        "verdict": "verdict",
        "created": "created_at",
    },
    "a run",
    actions={
        "cancel": Verb(
            "canceled",
            "Cancel a run and its open jobs. Results that are there stay.",
            template="{id} is {state}",
        )
    },
    about="`gonogo submit SUITE.yaml` starts one.",
    filters={
        "suite": "List only runs of the suite of this name.",
        "state": "List only runs in this state: " + ", ".join(RunState) + ".",
        "schedule": "List only runs of this schedule's id.",
    },
    kinds={"state": RunState},
    page=urls.run,
)

"""Gauges as the API and the command know them."""

from __future__ import annotations

from gonogo import urls
from gonogo.cli.kit.noun import Noun, Verb
from gonogo.flakiness.grades import Sharpness
from gonogo_service.kit.database.states import JobState

GAUGES = Noun(
    "gauges",
    {
        "gauge": "id",
        "kernel": "kernel",
        "state": "state",
        "runs": lambda gauge: f"{gauge['done']}/{gauge['total']}",
        "sharpness": "sharpness",
        "created": "created_at",
    },
    "a gauge",
    about="`gonogo gauge` measures a test here.",
    filters={
        "test": "List only gauges of the test with this key.",
        "state": "List only gauges in this state: " + ", ".join(JobState) + ".",
        "sharpness": "List only gauges with this result: " + ", ".join(Sharpness) + ".",
    },
    kinds={"state": JobState, "sharpness": Sharpness},
    create=Verb("created", "Measure a test.", command=False),
    page=urls.gauge,
)

"""`gonogo jobs`: one test on one build with its seeds."""

from __future__ import annotations

from gonogo import urls
from gonogo.cli.kit import show
from gonogo.cli.kit.noun import Noun, Verb

JOBS = Noun(
    "jobs",
    {
        "job": "id",
        "test": lambda job: f"{job['kernel']} {show.what(job.get('test') or {})}",
        "build": "build",
        "state": "state",
        "seeds": lambda job: f"{job['done']}/{job['total']}",
        "verdict": "verdict",
        "counts": lambda job: show.counts(job.get("counts") or {}),
    },
    "a job",
    about="`gonogo submit` starts one.",
    filters={
        "state": "List only this state: queued, running, finished, cancelled or failed.",
        "verdict": "List only jobs with this verdict, such as 'hollow pass' or fail.",
        "build": "List only jobs of this build.",
        "test": "List only jobs of this test's key.",
        "label": "List only jobs with this label, NAME=VALUE.",
    },
    remove=Verb(
        "deleted", "Delete a job that has ended, with its results and artifacts, for ever."
    ),
    actions={
        "cancel": Verb(
            "canceled",
            "Cancel a job. A running kernel is stopped within seconds; results that are there "
            "stay.",
            template="{id} is {state}",
        )
    },
    page=urls.job,
)

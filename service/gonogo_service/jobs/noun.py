"""Jobs as the API and the command know them: one test on one build with its seeds."""

from __future__ import annotations

from typing import Literal

from gonogo import urls
from gonogo.cli.kit import show
from gonogo.cli.kit.noun import Noun, Verb
from gonogo.spec.verdicts import Verdict
from gonogo_service.kit.database.states import JobState

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
        "kernel": "List only jobs of this kernel.",
        "test": "List only jobs of this test's key.",
        "workload": "List only jobs of the tests with this workload's key.",
        "label": "List only jobs with this label, NAME or NAME=VALUE.",
        "owner": "List only jobs of this owner.",
        "kind": "List only jobs that ran here (seeds), or imported ones (import).",
    },
    kinds={"state": JobState, "verdict": Verdict, "kind": Literal["seeds", "import"]},
    remove=Verb(
        "deleted",
        "Delete a job that has ended, with its results and artifacts, for ever.",
        scope="admin",
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

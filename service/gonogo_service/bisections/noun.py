"""Bisections as the API and the command know them."""

from __future__ import annotations

from gonogo import urls
from gonogo.cli.kit.noun import Noun, Verb
from gonogo_service.kit.database.states import BisectionState

BISECTIONS = Noun(
    "bisections",
    {
        "bisection": "id",
        "builds": lambda bisection: len(bisection["builds"]),
        "runs": "runs",
        "state": "state",
        "answer": "words",
        "created": "created_at",
    },
    "a bisection",
    filters={
        "test": "List only bisections of the test with this key.",
        "state": "List only bisections in this state: " + ", ".join(BisectionState) + ".",
    },
    kinds={"state": BisectionState},
    create=Verb("created", "Find the build that changed a test.", command=False),
    page=urls.bisection,
)

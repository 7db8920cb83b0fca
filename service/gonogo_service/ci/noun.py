"""Rules, incoming deliveries, commit checks and answers to GitHub, for the API and the command."""

from __future__ import annotations

from gonogo.cli.kit.noun import Noun, Verb
from gonogo_service.kit.database.states import AnswerState, HookSource, IncomingState

HOOKS = Noun(
    "hooks",
    {
        "delivery": "id",
        "received": "received_at",
        "event": "event",
        "repository": "repository",
        "state": "state",
        "reason": "reason",
    },
    "a delivery",
    filters={
        "source": "Only those of this sender.",
        "state": "Only those in this state.",
        "event": "Only those of this type, such as push.",
        "repository": "Only those of this repository: owner/name.",
    },
    kinds={"source": HookSource, "state": IncomingState},
    path="/hooks/deliveries",
    plural="deliveries",
)
COMMIT_CHECKS = Noun(
    "commit_checks",
    {},
    "a commit check",
    filters={"repository": "Only those of this repository.", "run": "Only those of this run."},
    path="/hooks/commit_checks",
    plural="commits that runs are for",
)
ANSWERS = Noun(
    "answers",
    {},
    "an answer",
    filters={"state": "Only those in this state."},
    kinds={"state": AnswerState},
    path="/github/answers",
    plural="answers to GitHub",
)
RULES = Noun(
    "rules",
    {
        "name": "name",
        "version": "version",
        "events": "events",
        "repositories": "repositories",
        "owner": "owner",
        "updated": "updated_at",
    },
    "a rule",
    key="name",
    create=Verb("stored", "Store a rule.", scope="admin", command=False),
    remove=Verb("archived", "Archive a rule. What it started stays.", scope="admin"),
)

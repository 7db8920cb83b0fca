"""`gonogo hooks`: deliveries of GitHub and other CI that came in."""

from __future__ import annotations

from gonogo.cli.kit import nouns
from gonogo.cli.kit.noun import Noun

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
    about="Look at deliveries of GitHub and other CI.",
    filters={
        "source": "Only those of github, ci, or asked (looked up at GitHub).",
        "state": "Only those that are waiting, started, ignored or failed.",
        "event": "Only this type, such as push.",
        "repository": "Only those of this repository: owner/name.",
    },
    path="/hooks/deliveries",
    plural="deliveries",
)
app = nouns.app_of(HOOKS)

"""Rules as the API and the command know them."""

from __future__ import annotations

from gonogo.cli.kit.noun import Noun, Verb

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
    about="Say which deliveries of GitHub and other CI start which suites.",
    key="name",
    create=Verb("stored", "Store a rule.", scope="admin", command=False),
    remove=Verb("archived", "Archive a rule. What it started stays.", scope="admin"),
)

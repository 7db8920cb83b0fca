"""Webhooks as the API and the command know them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gonogo import urls
from gonogo.cli.kit.noun import Noun, Verb
from gonogo_service.kit.database.states import WebhookKind, WebhookState
from gonogo_service.kit.strict import Strict
from gonogo_service.webhooks.addresses import MAX_CHARS

MAX_EVENTS = 20
Event = Literal[
    "job.finished",
    "run.finished",
    "flag.opened",
    "flag.resolved",
    "bisection.finished",
    "device.health_changed",
    "*",
]
Events = Annotated[list[Event], Field(min_length=1, max_length=MAX_EVENTS)]
Target = Annotated[str, Field(min_length=1, max_length=MAX_CHARS)]
Description = Annotated[str, Field(max_length=500)]


class WebhookIn(Strict):
    """A subscription to create."""

    url: Target = Field(
        description="http(s) address that gets a POST per event; for `message` an apprise URL"
    )
    events: Events = Field(description="Types of events; `*` means all")
    kind: WebhookKind = Field(
        WebhookKind.standard,
        strict=False,
        description="`standard`: Standard Webhooks, for programs; `message`: a line to people",
    )
    secret: str | None = Field(
        None, max_length=200, description="Your `whsec_...` secret; omitted: a new one"
    )
    description: Description = ""


class WebhookChange(Strict):
    """The fields to change; omitted fields stay."""

    url: Target | None = None
    events: Events | None = None
    description: Description | None = None
    state: WebhookState | None = Field(
        None, description="`disabled` cancels the waiting messages", strict=False
    )


WEBHOOKS = Noun(
    "webhooks",
    {
        "webhook": "id",
        "kind": "kind",
        "url": "url",
        "events": "events",
        "state": "state",
        "reason": "reason",
    },
    "a webhook",
    scope="admin",
    create=Verb(
        "created",
        "Create a webhook and print its secret, which is shown this once.\n\nThe URL of a message"
        " to people is a secret, too: it is never shown.",
        WebhookIn,
        scope="admin",
        positional=("url",),
    ),
    change=Verb(
        "changed",
        "Change a webhook. What you don't name stays.",
        WebhookChange,
        scope="admin",
        options={"state": ""},  # --enable and --disable
    ),
    remove=Verb("deleted", "Delete a webhook with its deliveries.", scope="admin"),
    actions={
        "rotate": Verb(
            "rotated",
            "Make a new secret and print it. For a day the old one signs as well.",
        ),
        "test": Verb("tested", "Send a test message.", template="sent {id}: {state}"),
    },
    page=urls.webhook,
)

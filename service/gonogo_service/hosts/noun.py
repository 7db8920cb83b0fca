"""Hosts as the API and the command know them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gonogo.cli.kit.noun import Noun, Verb
from gonogo_service.devices.noun import HostChange
from gonogo_service.kit.strict import Strict


class NewHost(Strict):
    """The host to add."""

    name: str = Field(
        min_length=1,
        max_length=100,
        description="The name that the host gets; its devices begin with it",
    )
    queues: list[Annotated[str, Field(min_length=1, max_length=200)]] | None = Field(
        None,
        min_length=1,
        max_length=20,
        description="Patterns of queues, such as ttnn.wormhole.*: the host may run no attempt of "
        "another one; default: those that it has, else any",
    )
    addresses: list[str] | None = Field(
        None,
        max_length=50,
        description="Addresses or networks, such as 10.1.0.0/16, that the host may ask from; empty:"
        " any; default: those that it has, else any",
    )


ADD = Verb(
    "added",
    "Make a one-time code for a new host, or for one that has lost its token, and print it.",
    NewHost,
    scope="admin",
    positional=("name",),
    options={"addresses": "--address"},
)
HOSTS = Noun(
    "hosts",
    {
        "host": "name",
        "queues": "queues",
        "addresses": "addresses",
        "state": "state",
        "heard": "heard_at",
        "clock ahead, s": "clock_skew_s",
        "refused": lambda host: sum(host["refused"].values()) or None,
        "flagged": "flagged_at",
        "why": "flag_reason",
        "joined": "joined_at",
        "token expires": "token_expires_at",
        "revoked": "revoked_at",
    },
    "a host",
    key="name",
    actions={
        "revoke": Verb(
            "revoked", "Refuse every request of a host from now on.", HostChange, scope="admin"
        )
    },
)

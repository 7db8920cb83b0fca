"""Flags as the API and the command know them."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field

from gonogo import urls
from gonogo.cli.kit.noun import Noun, Verb
from gonogo.flakiness.flag_kinds import FlagKind
from gonogo.spec.described import Described
from gonogo_service.kit.strict import Moment, Strict


class FlagState(Described):
    """The state of a flag."""

    open = "open", "Nobody has acknowledged it."
    acknowledged = "acknowledged", "Somebody accepts it until a date."
    resolved = "resolved", "It no longer applies."
    reopened = "reopened", "It came back after it was resolved."


ACKNOWLEDGED_FOR = timedelta(days=14)
"""An acknowledgement lasts this long unless a date is given."""
MAX_OWNER = 100
MAX_REASON = 2000
MAX_AT_ONCE = 200
Owner = Annotated[str, Field(min_length=1, max_length=MAX_OWNER)]
Reason = Annotated[str, Field(min_length=1, max_length=MAX_REASON)]


class FlagFields(Strict):
    """The fields to change; omitted fields stay.

    Only a job that finds it again sets a flag to `reopened`; people set a resolved flag to `open`.
    An acknowledgement needs a reason. Until it expires, comparisons show the finding as `waived`;
    the flag's `effect` says which results and where. Then the flag is open again.
    """

    state: Literal["open", "acknowledged", "resolved"] = Field("open")
    owner: Owner | None = Field(
        None, description="Who looks after it; default: who acknowledges it"
    )
    reason: Reason | None = Field(None, description="Why; required to acknowledge it")
    expires: Moment | None = Field(
        None,
        description=(
            "RFC 3339 with a time zone; only for an acknowledgement; by default "
            f"{ACKNOWLEDGED_FOR.days} days from now, at most GONOGO_WAIVER_DAYS"
        ),
    )


class FlagChange(FlagFields):
    """A change of one flag."""

    version: int | None = Field(
        None, ge=1, description="Rejected with 409 if the flag has a newer version"
    )


class FlagsChange(FlagFields):
    """The same change of several flags."""

    ids: list[Annotated[str, Field(max_length=36)]] = Field(min_length=1, max_length=MAX_AT_ONCE)
    versions: dict[str, int] = Field(
        {},
        max_length=MAX_AT_ONCE,
        description="Id -> version; a flag that has a newer version is refused",
    )


LABELS = {kind.value: kind.label for kind in FlagKind}
FLAGS = Noun(
    "flags",
    {
        "flag": "id",
        "kind": lambda flag: LABELS.get(flag["kind"], flag["kind"]),
        "state": "state",
        "kernel": "kernel",
        "build": "build",
        "where": lambda flag: f"{flag['arch']} {flag['board']}",
        "jobs": "jobs",
        "owner": "owner",
        "updated": "updated_at",
    },
    "a flag",
    filters={
        "kind": "List only this kind, such as flaky or 'hollow pass'.",
        "state": "List only this state: open (also reopened), acknowledged, resolved; any: all.",
        "test": "List only flags of this test's key.",
        "build": "List only flags whose newest evidence is of this build.",
        "job": "List only flags whose newest evidence is of this job.",
        "owner": "List only flags of this owner.",
    },
    kinds={"kind": FlagKind, "state": FlagState},
    defaults={"state": "open"},
    change=Verb(
        "changed",
        "Acknowledge, resolve or reopen a flag. What you don't name stays.\n\nUntil an"
        " acknowledgement ends, the finding blocks no commit.",
        FlagFields,
    ),
    page=urls.flag,
    labels={"kind": LABELS},
    parts={
        "history": {name: name for name in ("at", "before", "after", "actor", "reason")},
    },
)

"""Waivers as the API and the command know them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from gonogo.cli.kit.noun import Item, Noun, Verb
from gonogo.flakiness.classes import Class
from gonogo.flakiness.waivers import RED_OR_HOLLOW, WAIVABLE
from gonogo.spec.described import Described
from gonogo_service.flags.noun import Owner, Reason
from gonogo_service.kit.strict import Labels, Moment, Strict

MAX_PATTERNS = 20
MAX_KEY = 100

Pattern = Annotated[str, Field(min_length=1, max_length=300, pattern=r"^!?[^!\r\n][^\r\n]*$")]
Patterns = Annotated[list[Pattern], Field(max_length=MAX_PATTERNS)]
Waived = Annotated[Class, Field(strict=False)]
Classes = Annotated[list[Waived], Field(min_length=1, max_length=len(WAIVABLE))]
DEFAULT = list(RED_OR_HOLLOW)
_CLASSES = "Some of " + ", ".join(kind.value for kind in WAIVABLE)
_OWNER = "Who looks after it; default: the caller"


class WaiverIn(Strict):
    """A waiver of tests by key, name, or a label of their jobs; all given fields must match."""

    test: Annotated[str, Field(min_length=1, max_length=MAX_KEY)] | None = Field(
        None, description="A test's key"
    )
    names: Patterns = Field(
        [],
        description="Patterns of names as `gonogo compare` shows them: `*` does not match slashes,"
        " `**` does, `!` excludes",
    )
    labels: Labels = Field({}, description="A job of the test on head must have all of them")
    builds: Patterns = Field([], description="Patterns of head's build; empty: any")
    classes: Classes = Field(DEFAULT, description=f"{_CLASSES}; default: all red or hollow")
    owner: Owner | None = Field(None, description=_OWNER)
    reason: Reason = Field(description="Why the findings are accepted")
    expires: Moment = Field(
        description="RFC 3339 with a time zone; at most GONOGO_WAIVER_DAYS from now"
    )


class WaiverChange(Strict):
    """The fields to change; omitted fields stay.

    A waiver's tests can't change: create another waiver for other tests.
    """

    owner: Owner = Field("", description="Who looks after it")
    reason: Reason = Field("", description="Why the findings are accepted")
    classes: Classes = Field(DEFAULT, description=_CLASSES)
    expires: Moment | None = Field(
        None, description="The new end, which renews the waiver; the limit counts from now"
    )
    version: int | None = Field(
        None, ge=1, description="Rejected with 409 if the waiver has a newer version"
    )


def about(waiver: Item) -> str:
    """Return which tests a waiver covers, in a few words."""
    labels = [f"{name}={value}" for name, value in waiver["labels"].items()]
    builds = [f"on {build}" for build in waiver["builds"]]
    return ", ".join([*filter(None, [waiver["test"]]), *waiver["names"], *labels, *builds])


class WaiverState(Described):
    """The state of a waiver, computed from the clock at each read."""

    active = "active", "It accepts findings until its end.", "In force"
    expired = "expired", "Its end has come."
    ended = "ended", "Somebody ended it before its end."


_OPTIONS = {"classes": "--class"}
WAIVERS = Noun(
    "waivers",
    {
        "id": "id",
        "state": "state",
        "tests": about,
        "until": "expires_at",
        "owner": "owner",
        "reason": "reason",
    },
    "a waiver",
    about="Verdicts stay as they are.",
    filters={
        "test": "List only waivers of this test's key, also those that name it or its labels.",
        "state": "List only this state: active, expired, ended; any lists all.",
        "owner": "List only waivers of this owner.",
    },
    kinds={"state": WaiverState},
    defaults={"state": "active"},
    create=Verb("created", "Waive classes of some tests until a date.", WaiverIn, options=_OPTIONS),
    change=Verb("changed", "Renew or change a waiver in force.", WaiverChange, options=_OPTIONS),
    remove=Verb("ended", "End a waiver now. It stays visible."),
)

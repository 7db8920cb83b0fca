"""`gonogo flags`: findings about tests that need someone's attention."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import typer

from gonogo.cli.kit import nouns
from gonogo.errors import FieldError
from gonogo.fields import did_you_mean
from gonogo.flakiness.flag_kinds import FlagKind
from gonogo_service.flags.noun import FLAGS, LABELS

DAYS = typer.Option(
    None, min=0.01, max=3650, help="Acknowledge it for so many days; then it is open again."
)


def _prepare(verb: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options with the kind of a label, and with the end of so many days."""
    if verb == "list" and options["kind"] is not None:
        kind = FlagKind.named(options["kind"])
        if kind is None:
            labels = [label.lower() for label in LABELS.values()]
            hint = did_you_mean(options["kind"].lower(), [*labels, *LABELS])
            reason, limit = f"unknown kind of flag{hint}", "one of " + ", ".join(labels)
            raise FieldError("--kind", options["kind"], reason, limit=limit)
        return {**options, "kind": kind}
    if verb == "change" and (days := options.pop("days")) is not None:
        options["expires"] = (datetime.now(UTC) + timedelta(days=days)).isoformat()
    return options


app = nouns.app_of(FLAGS, prepare=_prepare, more={"change": {"days": (float | None, DAYS)}})

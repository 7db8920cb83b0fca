"""GitHub's refusals of fields that are not as its API wants them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit


class Problem(Exception):
    """An answer of 400 and more."""

    def __init__(self, status: int, message: str, *errors: str) -> None:
        super().__init__(message)
        self.status, self.message, self.errors = status, message, errors


def require(body: Any, name: str, allowed: set[str]) -> None:
    """One of a few words."""
    if not isinstance(body, dict) or body.get(name) not in allowed:
        raise Problem(422, "Validation Failed", f"{name} is not included in the list")


def text(body: Mapping[str, Any], name: str, most: int) -> None:
    """At most so long, where it is there."""
    value = body.get(name)
    if value is not None and (not isinstance(value, str) or len(value) > most):
        raise Problem(
            422, "Validation Failed", f"{name} is too long (maximum is {most} characters)"
        )


def address(body: Mapping[str, Any], name: str) -> None:
    """An address of the web, where it is there."""
    value = body.get(name)
    if value is not None and urlsplit(str(value)).scheme not in ("http", "https"):
        raise Problem(422, "Validation Failed", f"{name} must use http(s) scheme")


def comment_text(body: Any) -> None:
    """Check a comment's fields."""
    if not isinstance(body, dict) or not body.get("body"):
        raise Problem(422, "Validation Failed", "body cannot be blank")
    text(body, "body", 65536)


def actions(body: Mapping[str, Any]) -> None:
    """The buttons of a check run."""
    buttons = body.get("actions", ())
    if len(buttons) > 3:
        raise Problem(422, "Invalid request.", "More than 3 actions")
    for button in buttons:
        for name, most in (("label", 20), ("description", 40), ("identifier", 20)):
            if not button.get(name) or len(button[name]) > most:
                raise Problem(
                    422, "Invalid request.", f"the {name} of an action has 1 to {most} characters"
                )

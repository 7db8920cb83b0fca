"""Errors of the command as a program reads them: with --json one problem document (RFC 9457, as the
API's) on one line of stderr.

stdout holds results only, so that `gonogo ... --json | jq` never takes an error for one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from gonogo.errors import FieldError, InfrastructureError, quote

TYPE_PREFIX = "urn:gonogo:problem:"
USAGE, INFRASTRUCTURE = 2, 3


def wanted(words: Sequence[str]) -> bool:
    """Whether the command line asks for JSON."""
    own = words[: words.index("--")] if "--" in words else words
    return "--json" in own


def document(problem: BaseException | str, code: int) -> dict[str, Any]:
    """The problem: the server's own document where it made one, else one of the same form;
    `exit_code` is added.
    """
    said = getattr(problem, "document", None)
    if isinstance(said, dict):
        return {**said, "detail": str(problem), "exit_code": code}
    slug, title = (
        ("infrastructure", "Infrastructure")
        if isinstance(problem, InfrastructureError)
        else ("usage", "Usage")
    )
    found: dict[str, Any] = {"type": TYPE_PREFIX + slug, "title": title, "detail": str(problem)}
    if isinstance(problem, FieldError):
        named = {"field": problem.field, "value": quote(problem.value), "limit": problem.limit}
        found |= {
            "type": TYPE_PREFIX + "invalid-field",
            **named,
            "errors": [{**named, "message": f"{problem.field}: {problem.reason}"}],
        }
    return found | {"exit_code": code}


def tell(problem: BaseException | str, code: int) -> None:
    """Write the document to stderr."""
    print(json.dumps(document(problem, code)), file=sys.stderr, flush=True)

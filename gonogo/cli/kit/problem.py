"""The command's errors for programs: with --json, one RFC 9457 problem document on stderr.

stdout holds results only, so that `gonogo ... --json | jq` never takes an error for one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from gonogo.errors import FieldError, FieldErrors, InfrastructureError, quote

TYPE_PREFIX = "urn:gonogo:problem:"


def json_requested(words: Sequence[str]) -> bool:
    """Return whether the command line asks for JSON; words after `--` are not ours."""
    options = words[: words.index("--")] if "--" in words else words
    return "--json" in options


def document(problem: BaseException | str, code: int) -> dict[str, Any]:
    """Return the problem document: the server's own, else one like it; with `exit_code`."""
    from_server = getattr(problem, "document", None)
    if isinstance(from_server, dict):
        return {**from_server, "detail": str(problem), "exit_code": code}
    slug, title = (
        ("infrastructure", "Infrastructure")
        if isinstance(problem, InfrastructureError)
        else ("usage", "Usage")
    )
    document: dict[str, Any] = {"type": TYPE_PREFIX + slug, "title": title, "detail": str(problem)}
    if isinstance(problem, FieldError):
        errors = [
            {
                "field": error.field,
                "value": quote(error.value),
                "limit": error.limit,
                "message": f"{error.field}: {error.reason}",
            }
            for error in _errors(problem)
        ]
        named = {name: value for name, value in errors[0].items() if name != "message"}
        document |= {"type": TYPE_PREFIX + "invalid-field", **named, "errors": errors}
    return document | {"exit_code": code}


def lines(problem: BaseException) -> str:
    """Return a problem in words: several wrong fields have a line error."""
    if not isinstance(problem, FieldErrors) or len(problem.problems) == 1:
        return str(problem)
    heading = f"{len(problem.problems)} problems:"
    return "\n".join((heading, *(f"  {error}" for error in problem.problems)))


def _errors(problem: FieldError) -> Sequence[FieldError]:
    return problem.problems if isinstance(problem, FieldErrors) else (problem,)


def tell(problem: BaseException | str, code: int) -> None:
    """Write the document to stderr."""
    print(json.dumps(document(problem, code)), file=sys.stderr, flush=True)

"""Tell a run to a GoNoGo server: POST /imports, format "gonogo". urllib only: it runs in the
interpreter of a user's tests.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator
from typing import Any

TIMEOUT_S = 60.0
MOST_BYTES = 16 * 2**20
"""Of a body: a run with more is several imports. Half of a server's default limit."""
TOKEN_VARIABLE = "GONOGO_TOKEN"
MOST_SAID = 500
REFUSALS = (400, 413, 415, 422)
"""Answers that the same body gets again."""


class Unsent(Exception):
    """The server can't be reached, or doesn't take the run: says which address, and why.

    `refused`: it won't ever.
    """

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect would carry the token to another place."""

    def redirect_request(self, *_: Any) -> None:
        return None


def send(url: str, run: str, header: bytes, lines: Iterable[bytes]) -> list[dict[str, Any]]:
    """Store the run; the server's answers, one for each part.

    The same run sent again is stored once: each part has its Idempotency-Key.

    header, lines: JSON without line breaks. Raises Unsent; parts that arrived before stay.
    """
    return [
        _post(url, f"{run}-{number}", body) for number, body in enumerate(_bodies(header, lines))
    ]


def _bodies(header: bytes, lines: Iterable[bytes]) -> Iterator[bytes]:
    part, size = [header], len(header)
    for line in lines:
        if size + len(line) > MOST_BYTES and len(part) > 1:
            yield b"\n".join(part)
            part, size = [header], len(header)
        part.append(line)
        size += len(line) + 1
    yield b"\n".join(part)


def _post(url: str, key: str, body: bytes) -> dict[str, Any]:
    address = f"{url.rstrip('/')}/api/v1/imports?format=gonogo"
    request = urllib.request.Request(address, data=body, method="POST")
    request.add_header("Content-Type", "application/octet-stream")
    request.add_header("Idempotency-Key", key)
    if os.environ.get(TOKEN_VARIABLE):
        request.add_header("Authorization", f"Bearer {os.environ[TOKEN_VARIABLE]}")
    opener = urllib.request.build_opener(_NoRedirect)
    try:
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            found = json.loads(answer.read())
    except urllib.error.HTTPError as problem:
        raise Unsent(
            f"{url} answers {problem.code}: {_said(problem)}", refused=problem.code in REFUSALS
        ) from None
    except (
        OSError,
        ValueError,
    ) as problem:  # URLError is an OSError; ValueError: no JSON, or an address that is none
        raise Unsent(f"{url} can't be reached: {getattr(problem, 'reason', problem)}") from None
    if not isinstance(found, dict) or "id" not in found:
        raise Unsent(f"{url} is no GoNoGo server")
    return found


def _said(answer: urllib.error.HTTPError) -> str:
    """Return the detail of a problem document, else what the status means."""
    try:
        return str(json.loads(answer.read(1 << 20))["detail"])[:MOST_SAID]
    except (OSError, ValueError, KeyError, TypeError):
        return str(answer.reason)[:MOST_SAID]

"""Send a run to a GoNoGo server: POST /imports, format "gonogo".

It uses urllib only, because it runs in the interpreter of a user's tests.
"""

from __future__ import annotations

import http.client
import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator
from typing import Any

from gonogo.pytest_plugin.spool import Undelivered

TIMEOUT_S = 60.0
MAX_BYTES = 16 * 2**20
"""The size of a body: a larger run becomes several imports. It is half of a server's default
limit."""
TOKEN_VARIABLE = "GONOGO_TOKEN"
MAX_REASON = 500
UNREADABLE = (OSError, ValueError, RecursionError, http.client.HTTPException)
"""Nothing answers (URLError is an OSError), an invalid address, no JSON, no HTTP or half of it."""
REFUSALS = (400, 413, 415, 422)
"""Status codes that the same body gets again."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuse redirects, which would send the token to another place."""

    def redirect_request(self, *_: Any) -> None:
        return None


def send(url: str, run: str, header: bytes, lines: Iterable[bytes]) -> list[dict[str, Any]]:
    """Store the run, and return the server's responses, one for each part.

    The same run sent again is stored once, because each part has its Idempotency-Key. header,
    lines: JSON without line breaks. Raises Undelivered; parts that arrived before stay.
    """
    return [
        _post(url, f"{run}-{number}", body) for number, body in enumerate(_bodies(header, lines))
    ]


def _bodies(header: bytes, lines: Iterable[bytes]) -> Iterator[bytes]:
    part, size = [header], len(header)
    for line in lines:
        if size + len(line) > MAX_BYTES and len(part) > 1:
            yield b"\n".join(part)
            part, size = [header], len(header)
        part.append(line)
        size += len(line) + 1
    yield b"\n".join(part)


def _post(url: str, key: str, body: bytes) -> dict[str, Any]:
    address = f"{url.rstrip('/')}/api/v1/imports?format=gonogo"
    headers = {"Content-Type": "application/octet-stream", "Idempotency-Key": key}
    if token := os.environ.get(TOKEN_VARIABLE):
        if not (token.isascii() and token.isprintable()):  # http.client's message would show it
            raise Undelivered(f"{TOKEN_VARIABLE} must have printable ASCII characters only")
        headers["Authorization"] = f"Bearer {token}"
    opener = urllib.request.build_opener(_NoRedirect)
    try:
        request = urllib.request.Request(address, body, headers, method="POST")
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            stored = json.loads(answer.read())
    except urllib.error.HTTPError as problem:
        raise Undelivered(
            f"{url} answers {problem.code}: {_reason(problem)}", refused=problem.code in REFUSALS
        ) from None
    except UNREADABLE as problem:
        raise Undelivered(
            f"{url} can't be reached: {getattr(problem, 'reason', problem)}"
        ) from None
    if not isinstance(stored, dict) or "id" not in stored:
        raise Undelivered(f"{url} isn't a GoNoGo server")
    return stored


def _reason(answer: urllib.error.HTTPError) -> str:
    """Return the detail of a problem document, else the meaning of the status."""
    try:
        return str(json.loads(answer.read(1 << 20))["detail"])[:MAX_REASON]
    except (*UNREADABLE, KeyError, TypeError):
        return str(answer.reason)[:MAX_REASON]

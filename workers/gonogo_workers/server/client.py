"""Requests of a device host to its service: JSON over HTTPS, with the host's token."""

from __future__ import annotations

import gzip
import json
import ssl
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import httpx

from gonogo.errors import InfrastructureError
from gonogo.settings.release import release
from gonogo.urls import API
from gonogo_workers.server.host_file import Host

TIMEOUT = httpx.Timeout(30.0, connect=5.0)
CLAIM_TIMEOUT = httpx.Timeout(8.0, connect=5.0)
"""A worker that is told to stop waits for this answer; what nobody runs is woken again."""
GZIP_FROM = 2_000
"""Bytes; smaller bodies fit into two packets."""
GZIP_LEVEL = 1
AGAIN = frozenset({408, 421, 425, 429})
"""Statuses below 500 that pass by themselves, or once the service's settings are mended."""
Answer = dict[str, Any]


class Away(InfrastructureError):
    """The service didn't answer, or can't answer now: the same request may work later."""


class Refused(InfrastructureError):
    """The service answered that it won't do it.

    Attributes:
        status: the HTTP status.
        detail: what the service says, in words.
    """

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"the service refuses it ({status}): {detail}")
        self.status, self.detail = status, detail

    @property
    def is_of_token(self) -> bool:
        """Whether it isn't about the request but about the host's token."""
        return self.status in (401, 403)


class Server:
    """The service. Safe in any thread; redirects are not followed."""

    def __init__(self, host: Callable[[], Host | None], url: str, ca_file: str | None) -> None:
        """`host` returns whose token is shown; None shows none.

        ca_file: a file with the certificates of a lab's own authority.
        """
        self._host = host
        context = ssl.create_default_context(cafile=ca_file)
        self._client = httpx.Client(
            base_url=url + API,
            verify=context,
            timeout=TIMEOUT,
            headers={"User-Agent": f"gonogo-worker/{release()}"},
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        timeout: httpx.Timeout = TIMEOUT,
    ) -> Answer:
        """Send a request and return the answer's JSON.

        Raises Away where it may work later, Refused where it never will.
        """
        return self.send(method, path, packed(body or {}), timeout)

    def send(
        self, method: str, path: str, content: bytes, timeout: httpx.Timeout = TIMEOUT
    ) -> Answer:
        """Send a body that is packed already; returns and raises as `request` does."""
        headers = {"Content-Type": "application/json"}
        if content.startswith(b"\x1f\x8b"):
            headers["Content-Encoding"] = "gzip"
        host = self._host()
        if host is not None:
            headers["Authorization"] = f"Bearer {host.token}"
        try:
            response = self._client.request(
                method, path, content=content, headers=headers, timeout=timeout
            )
        except httpx.RequestError as problem:
            words = str(problem) or type(problem).__name__
            raise Away(f"no answer from {self._client.base_url}: {words}") from problem
        if response.is_success:
            return _json(response)
        detail = _detail(response)
        if response.status_code >= 500 or response.status_code in AGAIN:
            raise Away(f"the service can't answer ({response.status_code}): {detail}")
        raise Refused(response.status_code, detail)


def packed(body: Mapping[str, Any]) -> bytes:
    """Return a body as JSON, compressed where that pays. Raises ValueError for NaN and Inf."""
    text = json.dumps(body, allow_nan=False, separators=(",", ":")).encode()
    return text if len(text) < GZIP_FROM else gzip.compress(text, GZIP_LEVEL)


def unpacked(content: bytes) -> dict[str, Any]:
    """Return the body of `packed`. Raises ValueError for anything else."""
    is_packed = content.startswith(b"\x1f\x8b")
    try:
        body: dict[str, Any] = json.loads(gzip.decompress(content) if is_packed else content)
    except (OSError, EOFError, zlib.error) as problem:
        raise ValueError(str(problem)) from problem
    return body


def _json(response: httpx.Response) -> Answer:
    try:
        answer = response.json()
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise Away(f"{response.url.path} answered with something else than an object")
    return answer


def _detail(response: httpx.Response) -> str:
    """Return the detail of a problem document, else the beginning of the text."""
    try:
        problem = response.json()
        return str(problem.get("detail") or problem.get("title"))[:500]
    except (ValueError, RecursionError, AttributeError):
        return response.text[:200]

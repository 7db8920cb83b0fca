"""The command line's HTTP client: finds the server, sends the token, turns problem documents into
our errors, follows a job's events.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import httpx

import gonogo_settings
from gonogo.errors import InfrastructureError, JobError
from gonogo.urls import API
from gonogo_cli.kit.waiting import PATIENCE_S, POLL_S, Patience

ENDED = {"finished", "cancelled", "failed"}
SEND_S = 300.0
"""A large file is stored in one transaction before it is answered."""


class Refused(JobError):
    """The server refuses a request; `document` is its problem document."""

    def __init__(self, message: str, document: dict[str, Any]) -> None:
        super().__init__(message)
        self.document = document


class Unwell(InfrastructureError):
    """The server itself fails; `document` is its problem document."""

    def __init__(self, message: str, document: dict[str, Any]) -> None:
        super().__init__(message)
        self.document = document


def server_url() -> str:
    """GONOGO_URL, else the address of the `gonogo up` that runs in this folder. Raises
    InfrastructureError.
    """
    config = gonogo_settings.load()
    if config.url:
        return config.url.rstrip("/")
    try:
        record = json.loads((Path(config.var_dir) / "up.json").read_text())
    except (FileNotFoundError, ValueError):
        raise InfrastructureError(
            "no server: start one here with `gonogo up`, or name one in GONOGO_URL"
        ) from None
    return str(record["url"])


class Client:
    """One server's API. Raises InfrastructureError when it can't be reached or fails, JobError when
    it refuses (naming the field).
    """

    def __init__(self, url: str | None = None, token: str | None = None) -> None:
        configured = gonogo_settings.load().token
        self.url = url or server_url()
        secret = token or (configured.get_secret_value() if configured else None)
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        self._http = httpx.Client(
            base_url=self.url,
            headers=headers,
            timeout=httpx.Timeout(30.0, connect=5.0),
            trust_env=False,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def call(
        self, method: str, path: str, *, body: Mapping[str, Any] | None = None, **parameters: Any
    ) -> Any:
        """One request; the decoded JSON of the answer.

        A connection that breaks (the API was restarted under a kept-open one) is tried once more:
        the Idempotency-Key makes sure that the first try, if it did arrive, is not done twice.
        """
        return self._once(method, path, parameters, json=body)

    def send(self, path: str, data: bytes, **parameters: Any) -> Any:
        """POST a file; the decoded JSON of the answer. As `call`, with time for a large one."""
        headers = {"Content-Type": "application/octet-stream"}
        return self._once(
            "POST",
            path,
            parameters,
            content=data,
            headers=headers,
            timeout=httpx.Timeout(SEND_S, connect=5.0),
        )

    def _once(self, method: str, path: str, parameters: Mapping[str, Any], **more: Any) -> Any:
        wanted = {name: value for name, value in parameters.items() if value is not None}
        more["headers"] = more.get("headers", {}) | (
            {"Idempotency-Key": uuid.uuid4().hex} if method == "POST" else {}
        )
        for last in (False, True):
            try:
                answer = self._http.request(method, API + path, params=wanted, **more)
                break
            except httpx.TransportError as problem:
                if last or isinstance(problem, httpx.ConnectError | httpx.TimeoutException):
                    raise InfrastructureError(
                        f"{self.url} can't be reached: {problem}"
                    ) from problem
        return self._checked(answer).json()

    def _checked(self, answer: httpx.Response) -> httpx.Response:
        if answer.is_success:
            return answer
        answer.read()
        document = problem_of(answer)
        said = str(document["detail"])
        if answer.status_code >= 500 or answer.status_code == 429:
            raise Unwell(f"{self.url} answers {answer.status_code}: {said}", document)
        if answer.status_code == 401:
            said += " Set GONOGO_TOKEN."
        raise Refused(said, document)

    def parts(self, path: str, **parameters: Any) -> Iterator[bytes]:
        """A streamed answer as it comes (results as a file)."""
        try:
            with self._http.stream("GET", API + path, params=parameters) as answer:
                yield from self._checked(answer).iter_bytes()
        except httpx.TransportError as problem:
            raise InfrastructureError(f"{self.url} can't be reached: {problem}") from problem

    def pages(
        self, path: str, *, most: int | None = None, **parameters: Any
    ) -> Iterator[dict[str, Any]]:
        """Every item of a list, page by page, at most `most`."""
        cursor: str | None = None
        given = 0
        while True:
            page = self.call("GET", path, cursor=cursor, **parameters)
            for item in page["items"]:
                if most is not None and given >= most:
                    return
                yield item
                given += 1
            cursor = page.get("next")
            if cursor is None:
                return

    def job(self, job: str) -> dict[str, Any]:
        """GET /jobs/{id}."""
        found: dict[str, Any] = self.call("GET", f"/jobs/{job}")
        return found

    def follow(
        self, job: str, *, patience_s: float = PATIENCE_S
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """A job's events (type, data) until it ended. A lost connection is taken up again where it
        broke off, for up to `patience_s`.
        """
        last: str | None = None
        patience = Patience(patience_s)
        while True:
            try:
                for number, kind, data in self._events(job, last, patience):
                    last = number or last
                    yield kind, data
                    if kind == "state" and data.get("state") in ENDED:
                        return
                if (
                    self.job(job)["state"] in ENDED
                ):  # the stream may end before its last event is read
                    return
                time.sleep(POLL_S / 4)
            except (InfrastructureError, httpx.TransportError) as problem:
                if not patience.lost():
                    raise InfrastructureError(
                        f"{self.url} was lost while following {job}: {problem}"
                    ) from problem

    def _events(
        self, job: str, last: str | None, patience: Patience
    ) -> Iterator[tuple[str | None, str, dict[str, Any]]]:
        headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last} if last else {})
        with self._http.stream(
            "GET",
            f"{API}/jobs/{job}/events",
            headers=headers,
            timeout=httpx.Timeout(60.0, connect=5.0),
        ) as answer:
            lines = self._checked(answer).iter_lines()
            # with the answer, not with an event: a seed may take longer than anyone's patience
            patience.found()
            yield from parse_events(lines)

    def wait(self, job: str, *, patience_s: float = PATIENCE_S) -> dict[str, Any]:
        """The job once it ended."""
        for _ in self.follow(job, patience_s=patience_s):
            pass
        return self.job(job)


def parse_events(lines: Iterator[str]) -> Iterator[tuple[str | None, str, dict[str, Any]]]:
    """Server-sent events of a text stream: (id, event, data as JSON). Comments and events without
    data are left out.
    """
    number: str | None = None
    kind, data = "message", ""
    for line in lines:
        if line:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if name == "id":
                number = value
            elif name == "event":
                kind = value
            elif name == "data":
                data = f"{data}\n{value}" if data else value
        else:
            if data:
                yield number, kind, json.loads(data)
            kind, data = "message", ""


def problem_of(answer: httpx.Response) -> dict[str, Any]:
    """The RFC 9457 problem document of an answer, whose detail names each field, value and limit;
    one is made where it holds none.
    """
    try:
        found = answer.json()
    except ValueError:
        found = None
    if not isinstance(found, dict):
        found = {"title": answer.reason_phrase, "detail": answer.text[:200]}
    said = found.get("detail") or found.get("title") or "no detail"
    return {"type": "about:blank", "status": answer.status_code, **found, "detail": said}

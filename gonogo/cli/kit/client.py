"""The command's HTTP client: find the server, send the token, raise our errors, follow events."""

from __future__ import annotations

import fcntl
import json
import ssl
import sys
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Self

import httpx

import gonogo.settings
from gonogo.cli.kit.waiting import PATIENCE_S, POLL_S, Patience
from gonogo.errors import GonogoError, InfrastructureError, JobError
from gonogo.urls import API

PAGE = 500
"""Items that the API puts on a page at most."""
EXPIRES_HEADER = "GoNoGo-Token-Expires"
"""In answers to a token that ends within two weeks: when it does."""
ENDED = {"finished", "cancelled", "failed"}
ROOT = "GONOGO_URL is a server's own address without a path, such as http://127.0.0.1:8717"
SEND_S = 300.0
"""A large file is stored in one transaction before it is answered."""


class Answered(GonogoError):
    """The server answers with a problem; `document` is its problem document."""

    def __init__(self, message: str, document: dict[str, Any]) -> None:
        super().__init__(message)
        self.document = document


class Refused(Answered, JobError):
    """The server refuses a request."""


class Unwell(Answered, InfrastructureError):
    """The server itself fails."""


def server_url() -> str:
    """Return GONOGO_URL, else the address of the `gonogo up` that runs in this folder.

    Raises InfrastructureError when there is neither.
    """
    config = gonogo.settings.load()
    if config.url:
        return config.url.rstrip("/").removesuffix(API)
    record = _running_here()
    if record is None and _is_starting():
        raise InfrastructureError("`gonogo up` here isn't ready yet: try again in a moment")
    if record is None:
        raise InfrastructureError(
            "no server: start one here with `gonogo up`, or name one in GONOGO_URL"
        )
    return str(record["url"])


def _running_here() -> dict[str, Any] | None:
    """Return the record of the `gonogo up` that runs in this folder."""
    try:
        text = (Path(gonogo.settings.load().var_dir) / "up.json").read_text()
        record: dict[str, Any] = json.loads(text)
    except (OSError, ValueError):
        return None
    return record


def _is_starting() -> bool:
    """Return whether a `gonogo up` holds the lock of this folder."""
    try:
        with (Path(gonogo.settings.load().var_dir) / "up.lock").open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _token_of(url: str) -> str | None:
    """Return the token for a server: GONOGO_TOKEN, else that of the `gonogo up` in this folder.

    Raises JobError where its file can't be read.
    """
    config = gonogo.settings.load()
    if config.token is not None:
        return config.token.get_secret_value()
    record = _running_here() or {}
    if record.get("url") != url or not record.get("token_file"):
        return None
    return gonogo.settings.secrets.read_file(str(record["token_file"]), "gonogo up --token-file")


def _authorities(url: str) -> ssl.SSLContext | bool:
    """Return who may sign a server's certificate: GONOGO_CA_FILE, else those that browsers know.

    Without TLS there is nothing to verify: loading the certificates takes longer than a request.
    Raises JobError where the file can't be read.
    """
    ca_file = gonogo.settings.load().ca_file
    if url.startswith("http://") or ca_file is None:
        return not url.startswith("http://")
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as problem:
        raise JobError(f"GONOGO_CA_FILE: {ca_file} can't be read: {problem}") from problem


class Client:
    """One server's API.

    Raises InfrastructureError when the server can't be reached or fails, and JobError, which names
    the field, when it refuses.
    """

    def __init__(self, url: str | None = None, token: str | None = None) -> None:
        self.url = url or server_url()
        self._has_warned = False
        secret = token or _token_of(self.url)
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        self._http = httpx.Client(
            base_url=self.url,
            headers=headers,
            timeout=httpx.Timeout(30.0, connect=5.0),
            trust_env=False,
            verify=_authorities(self.url),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def call(
        self, method: str, path: str, *, body: Mapping[str, Any] | None = None, **parameters: Any
    ) -> Any:
        """Send a request; return the decoded JSON of the answer.

        A connection that breaks (the API was restarted under a kept-open one) is tried once more:
        the Idempotency-Key makes sure that the first try, if it did arrive, is not done twice.
        """
        if body is None:
            return self._once(method, path, parameters)
        # what is no JSON, such as NaN, is sent as well: the server names its field
        headers = {"Content-Type": "application/json"}
        return self._once(method, path, parameters, content=json.dumps(body), headers=headers)

    def send(self, path: str, data: bytes, **parameters: Any) -> Any:
        """POST a file, as `call` does, with time for a large one."""
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
        query = {name: value for name, value in parameters.items() if value is not None}
        more["headers"] = more.get("headers", {}) | (
            {"Idempotency-Key": uuid.uuid4().hex} if method == "POST" else {}
        )
        for last in (False, True):
            try:
                answer = self._http.request(method, API + path, params=query, **more)
                break
            except httpx.RequestError as problem:
                if last or isinstance(problem, httpx.ConnectError | httpx.TimeoutException):
                    raise self._unreachable(problem) from problem
        try:
            return self._checked(answer).json()
        except ValueError as problem:
            raise InfrastructureError(f"{self.url} answers with no JSON: {ROOT}") from problem

    def _unreachable(self, problem: Exception) -> InfrastructureError:
        """Return the message where nothing answers, with the remedy."""
        if "SSL" in str(problem) or "CERTIFICATE" in str(problem):
            remedy = "if the server has no TLS, its address begins with http://"
        else:
            remedy = "is the server running, and GONOGO_URL its address?"
        return InfrastructureError(f"{self.url} can't be reached: {problem}; {remedy}")

    def _checked(self, answer: httpx.Response) -> httpx.Response:
        self._warn(answer)
        if answer.is_success:
            return answer
        answer.read()
        problem, title = _problem_of(answer), answer.reason_phrase
        document = {"type": "about:blank", "status": answer.status_code, **(problem or {})}
        detail = str(document.get("detail") or document.get("title") or title or "no detail")
        document["detail"] = detail
        if answer.status_code >= 500 or answer.status_code == 429:
            raise Unwell(f"{self.url} answers {answer.status_code}: {detail}", document)
        if problem is None:
            # another program's page, or a path in GONOGO_URL that leads past the API
            words = f"{self.url} answers {answer.status_code} where the API should be: {ROOT}"
            raise Unwell(words, {**document, "detail": words})
        if answer.status_code == 401:
            detail += " Set GONOGO_TOKEN."
        raise Refused(detail, document)

    def _warn(self, answer: httpx.Response) -> None:
        """Say once that the token ends soon, on standard error."""
        end = answer.headers.get(EXPIRES_HEADER)
        if end is not None and not self._has_warned:
            self._has_warned = True
            print(f"gonogo: this token ends {end}: gonogo tokens rotate", file=sys.stderr)

    def parts(self, path: str, **parameters: Any) -> Iterator[bytes]:
        """Return the parts of a streamed answer, such as results as a file.

        The first one is read at once: a server that refuses leaves no empty file.
        """
        parts = self._parts(path, parameters)
        return chain([next(parts, b"")], parts)

    def _parts(self, path: str, parameters: Mapping[str, Any]) -> Iterator[bytes]:
        try:
            with self._http.stream("GET", API + path, params=parameters) as answer:
                yield from self._checked(answer).iter_bytes()
        except httpx.RequestError as problem:
            raise self._unreachable(problem) from problem

    def pages(
        self, path: str, *, most: int | None = None, **parameters: Any
    ) -> Iterator[dict[str, Any]]:
        """Yield every item of a list, page by page, at most `most`.

        A result with more outputs than a page has is put together again.
        """
        cursor: str | None = None
        given = 0
        item: dict[str, Any] | None = None
        while True:
            page = self.call("GET", path, cursor=cursor, **parameters)
            for later in page["items"]:
                if item is not None and later.get("outputs_from"):
                    item["outputs"].update(later["outputs"])
                    continue
                if item is not None:
                    yield item
                    given += 1
                    if most is not None and given >= most:
                        return
                item = later
            cursor = page.get("next")
            if cursor is None:
                if item is not None:
                    yield item
                return

    def some(
        self, path: str, *, limit: int, cursor: str | None = None, **parameters: Any
    ) -> dict[str, Any]:
        """Return at most `limit` items of a list, and the cursor of the rest (null: no more)."""
        items: list[Any] = []
        while True:
            size = min(limit - len(items), PAGE)
            page = self.call("GET", path, cursor=cursor, limit=size, **parameters)
            items += page["items"]
            cursor = page.get("next")
            if cursor is None or len(items) >= limit:
                return {"items": items, "next": cursor}

    def job(self, job: str) -> dict[str, Any]:
        """Return a job: GET /jobs/{id}."""
        record: dict[str, Any] = self.call("GET", f"/jobs/{job}")
        return record

    def follow(
        self, job: str, *, patience_s: float = PATIENCE_S
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield a job's events (type, data) until it has ended.

        Resumes a lost connection where it broke off, for up to `patience_s`.
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
            except (InfrastructureError, httpx.RequestError) as problem:
                if isinstance(problem, httpx.DecodingError) or not patience.lost():
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
            patience.reset()
            yield from parse_events(lines)

    def wait(self, job: str, *, patience_s: float = PATIENCE_S) -> dict[str, Any]:
        """Return the job once it has ended."""
        for _ in self.follow(job, patience_s=patience_s):
            pass
        return self.job(job)


def parse_events(lines: Iterator[str]) -> Iterator[tuple[str | None, str, dict[str, Any]]]:
    """Yield the server-sent events of a text stream as (id, event, data as JSON).

    Comments and events without data are left out.
    """
    event: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data" and name in event:
            event[name] += f"\n{value}"
        elif name:
            event[name] = value
        elif not line:
            if event.get("data"):
                yield event.get("id"), event.get("event", "message"), json.loads(event["data"])
            event = {}


def lines(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of a stream; text in JSON may hold other characters that end lines."""
    rest = b""
    for part in parts:
        *lines, rest = (rest + part).split(b"\n")
        yield from lines


def _problem_of(answer: httpx.Response) -> dict[str, Any] | None:
    """Return an answer's RFC 9457 problem document; None where another program answered."""
    try:
        document = answer.json()
    except ValueError:
        return None
    return document if isinstance(document, dict) else None

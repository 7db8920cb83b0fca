"""A stand-in for GitHub's REST API: a real HTTP server that is as strict about paths, headers,
tokens and fields as GitHub is, and keeps what it is told."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

REPOSITORY = "lab/kernels"
TOKEN = "ghp_a_token_of_the_tests"
APP = "4711"
INSTALLATION = 99
LOGIN = "gonogo"
STATES = {"error", "failure", "pending", "success"}
CONCLUSIONS = {"action_required", "cancelled", "failure", "neutral", "success", "skipped"}
LEVELS = {"notice", "warning", "failure"}
FORM = ("application/vnd.github+json", "2022-11-28")


@dataclass(frozen=True)
class Scripted:
    """An answer given in the place of the next one."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RecordedRequest:
    """One request."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any


class Problem(Exception):
    """An answer of 400 and more."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


def check(right: object, message: str) -> None:
    """Refuse a field that is not as the API wants it."""
    if not right:
        raise Problem(422, f"Validation Failed: {message}")


def texts(body: Mapping[str, Any], most: Mapping[str, int], *, needed: Iterable[str] = ()) -> None:
    """Check the texts of an object, by the number of their characters."""
    for name, length in most.items():
        value = body.get(name)
        check(value or name not in needed, f"{name} wasn't supplied")
        check(value is None or len(value) <= length, f"{name} has more than {length} characters")
    for name in ("target_url", "details_url"):
        value = body.get(name, "https://")
        check(urlsplit(value).scheme in ("http", "https"), f"{name} must use http(s) scheme")


@lru_cache(maxsize=1)
def app_key() -> rsa.RSAPrivateKey:
    """The App's key: to make one takes longer than most tests."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


class GitHubServer:
    """Serves one repository. `installed`: whether the App is; `most`: the longest page, so that a
    few items make several; `files`: the paths of every
    pull request; None: nobody may read them."""

    def __init__(self) -> None:
        self.key = app_key()
        self.pem = self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        ).decode()
        self.clear()
        self._count = 1000
        self._lock = threading.Lock()
        github = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # head and body in one packet, else each answer waits 40 ms for an acknowledgement
            wbufsize = 65536

            def do_GET(self) -> None:
                github._serve(self)

            do_POST = do_PATCH = do_GET

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def clear(self) -> None:
        """As if nobody had ever asked."""
        self.requests: list[RecordedRequest] = []
        self.script: list[Scripted] = []
        self.commits: set[str] = set()
        self.pull_requests: set[int] = set()
        self.pulls: list[dict[str, Any]] = []
        self.files: list[str] | None = None
        self.statuses: list[dict[str, Any]] = []
        self.checks: list[dict[str, Any]] = []
        self.comments: list[dict[str, Any]] = []
        self.tokens: set[str] = {TOKEN}
        self.installed = True
        self.moved: str | None = None  # the repository's new name: its old address redirects there
        # the first answer to each request that changes something is lost, after it was carried out
        self.lossy = False
        self._lost: set[tuple[str, str]] = set()
        self.most = 100
        self.forbidden = "nothing"  # the end of paths for which the token has no right

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def paths(self, method: str) -> list[str]:
        """Return the paths that a method requested, in order."""
        return [request.path for request in self.requests if request.method == method]

    def status_of(self, sha: str) -> dict[str, str]:
        """The state of status context of a commit, as GitHub would show it: the last one counts."""
        return {
            status["context"]: status["state"] for status in self.statuses if status["sha"] == sha
        }

    def open(
        self,
        number: int,
        head: str,
        base: str,
        *,
        state: str = "open",
        to: str = REPOSITORY,
        fork: bool = False,
    ) -> None:
        self.pull_requests.add(number)
        of = "someone/kernels" if fork else to
        pull: dict[str, Any] = {
            "head": {"sha": head, "ref": "fix", "repo": {"id": len(of), "full_name": of}},
            "base": {"sha": base, "ref": "main", "repo": {"id": len(to), "full_name": to}},
        }
        about = {"number": number, "state": state, "updated_at": "2026-02-01T12:00:00Z"}
        self.pulls.append({**about, **pull})

    def comment(self, pull_request: int, body: str) -> int:
        """Store a comment by somebody else."""
        record = {"body": body, "user": {"login": "someone"}, "performed_via_github_app": None}
        return int(self._store(self.comments, {"pull_request": pull_request, **record})["id"])

    def _store(self, rows: list[dict[str, Any]], row: dict[str, Any]) -> dict[str, Any]:
        self._count += 1
        rows.append({"id": self._count, **row})
        return rows[-1]

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        raw = handler.rfile.read(int(handler.headers.get("content-length") or 0))
        request = RecordedRequest(
            handler.command,
            unquote(parts.path),
            {name: values[-1] for name, values in parse_qs(parts.query).items()},
            {name.lower(): value for name, value in handler.headers.items()},
            json.loads(raw) if raw else None,
        )
        with self._lock:
            status, more, body = self._answer(request)
        content = json.dumps(body).encode()
        handler.send_response(status)
        for name, value in {"content-type": "application/json; charset=utf-8", **more}.items():
            handler.send_header(name, value)
        handler.send_header("content-length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    def _answer(self, request: RecordedRequest) -> tuple[int, Mapping[str, str], Any]:
        self.requests.append(request)
        if self.script:
            scripted = self.script.pop(0)
            return scripted.status, scripted.headers, scripted.body
        more: dict[str, str] = {}
        try:
            status = 201 if request.method == "POST" else 200
            body = self._route(request, more)
        except Problem as problem:
            status, body = problem.status, {"message": problem.message}
        change = request.method, request.path
        if self.lossy and request.method != "GET" and change not in self._lost:
            self._lost.add(change)
            return 502, {}, {"message": "Bad Gateway"}
        return status, more, body

    def _route(self, request: RecordedRequest, more: dict[str, str]) -> Any:
        """Return the body of the answer; `more` gets its headers."""
        path, headers = request.path, request.headers
        if (headers.get("accept"), headers.get("x-github-api-version")) != FORM:
            raise Problem(415, "Unsupported 'Accept' header or API version")
        if not headers.get("user-agent", "").startswith("GoNoGo/"):
            raise Problem(403, "Please make sure your request has a User-Agent header")
        by_app = self._admit(path, headers.get("authorization", ""))
        if path.endswith(self.forbidden):
            raise Problem(403, "Resource not accessible by personal access token")
        if self.moved is not None and path.startswith(f"/repos/{REPOSITORY}/"):
            query = f"?{urlencode(request.query)}" if request.query else ""
            more["location"] = self.url + path.replace(REPOSITORY, self.moved, 1) + query
            raise Problem(307, "Moved Permanently")

        def page(rows: list[Any]) -> list[Any]:
            size = min(int(request.query.get("per_page", "30")), 100, self.most)
            number = int(request.query.get("page", "1"))
            if number * size < len(rows):
                following = f"{self.url}{path}?{urlencode({**request.query, 'page': number + 1})}"
                last = f'<{self.url}{path}?page=99>; rel="last"'
                more["link"] = f'<{following}>; rel="next", {last}'
            return rows[(number - 1) * size : number * size]

        def checks_of(sha: str) -> dict[str, Any]:
            name = self._known(sha) and request.query.get("check_name")
            of = [one for one in self.checks if one["head_sha"] == sha]
            of = [one for one in of if name in (None, one["name"])]
            return {"total_count": len(of), "check_runs": page(of)}

        def comments_of(number: str) -> list[Any]:
            self._pull_request(number)
            return page([one for one in self.comments if one["pull_request"] == int(number)])

        body = request.body
        of = f"/repos/{re.escape(self.moved or REPOSITORY)}"
        routes: list[tuple[str, str, Callable[..., Any]]] = [
            ("GET", f"{of}/installation", self._installation),
            ("POST", r"/app/installations/(\d+)/access_tokens", self._make_token),
            ("POST", f"{of}/statuses/([^/]+)", lambda sha: self._make_status(sha, body)),
            ("GET", "/user", lambda: self._user(by_app)),
            ("GET", rf"{of}/pulls/\d+/files", lambda: page(self._files())),
            (
                "GET",
                f"{of}/commits/([^/]+)/pulls",
                lambda sha: self._known(sha) and page(self.pulls),
            ),
            ("GET", f"{of}/commits/([^/]+)/check-runs", checks_of),
            ("POST", f"{of}/check-runs", lambda: self._make_check(body)),
            ("GET", rf"{of}/check-runs/(\d+)", lambda number: self._check(number, {})),
            ("PATCH", rf"{of}/check-runs/(\d+)", lambda number: self._check(number, body)),
            ("GET", rf"{of}/issues/(\d+)/comments", comments_of),
            ("POST", rf"{of}/issues/(\d+)/comments", lambda n: self._make_comment(n, body, by_app)),
            ("PATCH", rf"{of}/issues/comments/(\d+)", lambda n: self._change_comment(n, body)),
        ]
        for verb, pattern, work in routes:
            if verb == request.method and (match := re.fullmatch(pattern, path)):
                if "check-runs" in path and verb != "GET" and not by_app:
                    raise Problem(403, "You must authenticate via a GitHub App.")
                return work(*match.groups())
        raise Problem(404, "Not Found")

    def _admit(self, path: str, authorization: str) -> bool:
        """Whether an App speaks. Raises Problem for anyone who may not."""
        scheme, _, text = authorization.partition(" ")
        if scheme != "Bearer":
            raise Problem(401, "Requires authentication")
        if path.startswith("/app/") or path.endswith("/installation"):
            try:
                claims = jwt.decode(text, self.key.public_key(), ["RS256"], issuer=APP)
                if claims["exp"] - claims["iat"] > 660:  # 10 min, and one before now
                    raise Problem(401, "'Expiration time' claim ('exp') is too far away")
            except jwt.PyJWTError:
                raise Problem(401, "A JSON web token could not be decoded") from None
            return True
        if text not in self.tokens:
            raise Problem(401, "Bad credentials")
        return text != TOKEN

    def _installation(self) -> dict[str, Any]:
        if not self.installed:
            raise Problem(404, "Not Found")
        return {"id": INSTALLATION, "app_id": int(APP)}

    def _make_token(self, number: str) -> dict[str, Any]:
        if int(number) != INSTALLATION:
            raise Problem(404, "Not Found")
        self._count += 1
        self.tokens.add(f"ghs_{self._count}")
        return {"token": f"ghs_{self._count}"}

    def _user(self, by_app: bool) -> dict[str, Any]:
        if by_app:
            raise Problem(403, "Resource not accessible by integration")
        return {"login": LOGIN}

    def _make_status(self, sha: str, body: Any) -> dict[str, Any]:
        self._known(sha)
        check(body.get("state") in STATES, "state is not included in the list")
        texts(body, {"description": 140})
        return self._store(self.statuses, {"sha": sha, "context": "default", **body})

    def _make_check(self, body: Any) -> dict[str, Any]:
        texts(body, {"name": 255, "head_sha": 64}, needed=("name", "head_sha"))
        self._known(body["head_sha"])
        fresh: dict[str, Any] = {"status": "queued", "annotations": []}
        self._write_check(fresh, body)
        return _shown(self._store(self.checks, fresh))

    def _check(self, number: str, body: dict[str, Any]) -> dict[str, Any]:
        row = _row_of(self.checks, number)
        self._write_check(row, body)
        return _shown(row)

    def _write_check(self, row: dict[str, Any], body: dict[str, Any]) -> None:
        states = {"queued", "in_progress", "completed", None}
        check(body.get("status") in states, "status is not included in the list")
        conclusion = body.get("conclusion")
        ended = body.get("status") == "completed"
        check(conclusion in CONCLUSIONS or (conclusion is None and not ended), "conclusion")
        texts(body, {"external_id": 255})
        check(len(body.get("actions", ())) <= 3, "more than 3 actions")
        for button in body.get("actions", ()):
            lengths = {"label": 20, "description": 40, "identifier": 20}
            texts(button, lengths, needed=lengths)
        output = dict(body.get("output") or {})
        if output:
            texts(output, {"title": 255, "summary": 65535}, needed=("title", "summary"))
        annotations = output.pop("annotations", [])
        check(len(annotations) <= 50, "more than 50 annotations")
        for note in annotations:
            check(note.get("annotation_level") in LEVELS, "annotation_level")
            check(min(note["start_line"], note["end_line"]) >= 1, "lines begin with 1")
            texts(note, {"path": 4096, "message": 16384, "title": 255}, needed=("path", "message"))
        row.update({name: value for name, value in body.items() if name != "output"})
        if output:
            row["output"] = output
        row["annotations"].extend(annotations)

    def _make_comment(self, number: str, body: Any, by_app: bool) -> dict[str, Any]:
        self._pull_request(number)
        texts(body, {"body": 65536}, needed=("body",))
        who: dict[str, Any] = {"user": {"login": LOGIN}}
        if by_app:
            app = {"id": int(APP), "client_id": "Iv1.of-the-tests"}
            who = {"user": {"login": f"{LOGIN}[bot]"}, "performed_via_github_app": app}
        of = {"body": body["body"], "pull_request": int(number)}
        return self._store(self.comments, of | who)

    def _change_comment(self, number: str, body: Any) -> dict[str, Any]:
        texts(body, {"body": 65536}, needed=("body",))
        row = _row_of(self.comments, number)
        if row["user"]["login"] not in (LOGIN, f"{LOGIN}[bot]"):
            raise Problem(403, "Must have admin rights to Repository.")
        row["body"] = body["body"]
        return row

    def _files(self) -> list[Any]:
        if self.files is None:
            raise Problem(404, "Not Found")
        return [{"filename": name} for name in self.files]

    def _known(self, sha: str) -> bool:
        if sha not in self.commits:
            raise Problem(422, f"No commit found for SHA: {sha}")
        return True

    def _pull_request(self, number: str) -> None:
        if int(number) not in self.pull_requests:
            raise Problem(404, "Not Found")


def _row_of(rows: list[dict[str, Any]], number: str) -> dict[str, Any]:
    row = next((row for row in rows if row["id"] == int(number)), None)
    if row is None:
        raise Problem(404, "Not Found")
    return row


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    output = {**row.get("output", {}), "annotations_count": len(row["annotations"])}
    return {**row, "output": output, "app": {"id": int(APP)}}

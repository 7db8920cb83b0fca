"""A stand-in for GitHub's REST API: a real HTTP server that is as strict about paths, headers,
tokens and fields as GitHub is, and keeps what it is told."""

from __future__ import annotations

import base64
import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from github_fields import Problem, actions, address, comment_text, require, text

REPOSITORY = "lab/kernels"
TOKEN = "ghp_a_token_of_the_tests"
APP = "4711"
INSTALLATION = 99
LOGIN = "gonogo"
STATES = {"error", "failure", "pending", "success"}
CONCLUSIONS = {
    "action_required",
    "cancelled",
    "failure",
    "neutral",
    "success",
    "skipped",
    "stale",
    "timed_out",
}
LEVELS = {"notice", "warning", "failure"}


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


@lru_cache(maxsize=1)
def app_key() -> rsa.RSAPrivateKey:
    """The App's key: to make one takes longer than most tests."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


class GitHubServer:
    """Serves one repository. `installed`: whether the App is; `most`: the longest page, so that a
    few items make several."""

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

            do_POST = do_PATCH = do_PUT = do_DELETE = do_GET

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
        self.life = timedelta(hours=1)

    def close(self) -> None:
        """Nobody answers any more."""
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
        """Somebody opens a pull request."""
        self.pull_requests.add(number)
        sides = {
            "head": (head, "fix", "someone/kernels" if fork else to),
            "base": (base, "main", to),
        }
        shown = {
            name: {"sha": sha, "ref": ref, "repo": {"id": len(of), "full_name": of}}
            for name, (sha, ref, of) in sides.items()
        }
        self.pulls.append(
            {"number": number, "state": state, "updated_at": "2026-02-01T12:00:00Z", **shown}
        )

    def comment(self, pull_request: int, body: str, login: str = "someone") -> int:
        """Store a comment by somebody else."""
        number = self._next()
        record = {"body": body, "user": {"login": login}, "performed_via_github_app": None}
        self.comments.append({"id": number, "pull_request": pull_request, **record})
        return number

    def _next(self) -> int:
        self._count += 1
        return self._count

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        length = int(handler.headers.get("content-length") or 0)
        raw = handler.rfile.read(length)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        headers = {name.lower(): value for name, value in handler.headers.items()}
        with self._lock:
            status, more, body = self._answer(
                handler.command, unquote(parts.path), query, headers, raw
            )
        content = json.dumps(body).encode()
        handler.send_response(status)
        for name, value in {"content-type": "application/json; charset=utf-8", **more}.items():
            handler.send_header(name, value)
        handler.send_header("content-length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    def _answer(
        self, method: str, path: str, query: dict[str, str], headers: dict[str, str], raw: bytes
    ) -> tuple[int, Mapping[str, str], Any]:
        try:
            body = json.loads(raw) if raw else None
        except ValueError:
            return 400, {}, {"message": "Problems parsing JSON"}
        self.requests.append(RecordedRequest(method, path, query, headers, body))
        scripted = self.script.pop(0) if self.script else None
        if scripted is not None:
            return scripted.status, scripted.headers, scripted.body
        try:
            answer = self._route(method, path, query, headers, body)
        except Problem as problem:
            errors = (
                {"errors": [{"message": message} for message in problem.errors]}
                if problem.errors
                else {}
            )
            answer = problem.status, {}, {"message": problem.message, **errors}
        if self.lossy and method != "GET" and (method, path) not in self._lost:
            self._lost.add((method, path))
            return 502, {}, {"message": "Bad Gateway"}
        return answer

    def _route(
        self, method: str, path: str, query: dict[str, str], headers: dict[str, str], body: Any
    ) -> tuple[int, dict[str, str], Any]:
        if (
            headers.get("accept") != "application/vnd.github+json"
            or headers.get("x-github-api-version") != "2022-11-28"
        ):
            raise Problem(415, "Unsupported 'Accept' header or API version")
        if not headers.get("user-agent", "").startswith("GoNoGo/"):
            raise Problem(
                403,
                (
                    "Request forbidden by administrative rules. Please make sure your request "
                    "has a User-Agent header"
                ),
            )
        by_app = self._admit(path, headers.get("authorization", ""))
        if path.endswith(self.forbidden):
            raise Problem(403, "Resource not accessible by personal access token")
        if self.moved is not None and path.startswith(f"/repos/{REPOSITORY}/"):
            target = path.replace(REPOSITORY, self.moved, 1) + (
                f"?{urlencode(query)}" if query else ""
            )
            return 307, {"location": self.url + target}, {"message": "Moved Permanently"}
        repository = f"/repos/{re.escape(self.moved or REPOSITORY)}"
        routes: list[tuple[str, str, Callable[..., tuple[int, dict[str, str], Any]]]] = [
            ("GET", repository + "/installation", self._installation),
            ("POST", r"/app/installations/(\d+)/access_tokens", self._make_token),
            ("POST", repository + "/statuses/([^/]+)", self._make_status),
            ("GET", "/user", self._user),
            ("GET", repository + "/commits/([^/]+)/pulls", self._list_pulls),
            ("GET", repository + "/commits/([^/]+)/check-runs", self._list_checks),
            ("POST", repository + "/check-runs", self._make_check),
            ("GET", repository + r"/check-runs/(\d+)", self._look_at_check),
            ("PATCH", repository + r"/check-runs/(\d+)", self._change_check),
            ("GET", repository + r"/issues/(\d+)/comments", self._list_comments),
            ("POST", repository + r"/issues/(\d+)/comments", self._make_comment),
            ("PATCH", repository + r"/issues/comments/(\d+)", self._change_comment),
        ]
        for verb, pattern, work in routes:
            if verb == method and (match := re.fullmatch(pattern, path)):
                if "check-runs" in path and method != "GET" and not by_app:
                    raise Problem(403, "You must authenticate via a GitHub App.")
                return work(*match.groups(), query=query, body=body, by_app=by_app)
        raise Problem(404, "Not Found")

    def _admit(self, path: str, authorization: str) -> bool:
        """Whether an App speaks. Raises Problem for anyone who may not."""
        scheme, _, text = authorization.partition(" ")
        if scheme != "Bearer":
            raise Problem(401, "Requires authentication")
        if path.startswith("/app/") or path.endswith("/installation"):
            self._check_jwt(text)
            return True
        if text not in self.tokens:
            raise Problem(401, "Bad credentials")
        return text != TOKEN

    def _check_jwt(self, text: str) -> None:
        try:
            head, claims, signature = text.split(".")
            self.key.public_key().verify(
                _bytes(signature), f"{head}.{claims}".encode(), padding.PKCS1v15(), hashes.SHA256()
            )
            header, given = json.loads(_bytes(head)), json.loads(_bytes(claims))
        except (ValueError, InvalidSignature):
            raise Problem(401, "A JSON web token could not be decoded") from None
        now = time.time()
        if (
            header != {"alg": "RS256", "typ": "JWT"}
            or str(given["iss"]) != APP
            or given["iat"] > now
            or not now < given["exp"] <= now + 600
        ):
            raise Problem(401, "'Expiration time' claim ('exp') or another is not right")

    def _installation(self, **_: Any) -> tuple[int, dict[str, str], Any]:
        if not self.installed:
            raise Problem(404, "Not Found")
        return 200, {}, {"id": INSTALLATION, "app_id": int(APP)}

    def _make_token(self, number: str, **_: Any) -> tuple[int, dict[str, str], Any]:
        if int(number) != INSTALLATION:
            raise Problem(404, "Not Found")
        token = f"ghs_{self._next()}"
        self.tokens.add(token)
        ends = (datetime.now(UTC) + self.life).strftime("%Y-%m-%dT%H:%M:%SZ")
        return (
            201,
            {},
            {
                "token": token,
                "expires_at": ends,
                "permissions": {"checks": "write", "statuses": "write", "issues": "write"},
            },
        )

    def _user(self, by_app: bool, **_: Any) -> tuple[int, dict[str, str], Any]:
        if by_app:
            raise Problem(403, "Resource not accessible by integration")
        return 200, {}, {"login": LOGIN}

    def _list_pulls(
        self, sha: str, query: dict[str, str], **_: Any
    ) -> tuple[int, dict[str, str], Any]:
        self._known(sha)
        page, headers = self._page(
            self.pulls, query, f"/repos/{self.moved or REPOSITORY}/commits/{sha}/pulls"
        )
        return 200, headers, page

    def _make_status(self, sha: str, body: Any, **_: Any) -> tuple[int, dict[str, str], Any]:
        self._known(sha)
        require(body, "state", STATES)
        text(body, "description", 140)
        address(body, "target_url")
        status = {"id": self._next(), "sha": sha, "context": "default", **body}
        self.statuses.append(status)
        return 201, {}, status

    def _list_checks(
        self, sha: str, query: dict[str, str], **_: Any
    ) -> tuple[int, dict[str, str], Any]:
        self._known(sha)
        name = query.get("check_name")
        runs = [
            run for run in self.checks if run["head_sha"] == sha and name in (None, run["name"])
        ]
        page, headers = self._page(
            runs, query, f"/repos/{self.moved or REPOSITORY}/commits/{sha}/check-runs"
        )
        return 200, headers, {"total_count": len(runs), "check_runs": page}

    def _make_check(self, body: Any, **_: Any) -> tuple[int, dict[str, str], Any]:
        for name in ("name", "head_sha"):
            if not body.get(name):
                raise Problem(422, "Invalid request.", f'"{name}" wasn\'t supplied.')
        self._known(body["head_sha"])
        run: dict[str, Any] = {"id": self._next(), "status": "queued", "annotations": []}
        self._write_check(run, body)
        self.checks.append(run)
        return 201, {}, _shown(run)

    def _look_at_check(self, number: str, **_: Any) -> tuple[int, dict[str, str], Any]:
        for run in self.checks:
            if run["id"] == int(number):
                return 200, {}, _shown(run)
        raise Problem(404, "Not Found")

    def _change_check(self, number: str, body: Any, **_: Any) -> tuple[int, dict[str, str], Any]:
        for run in self.checks:
            if run["id"] == int(number):
                self._write_check(run, body)
                return 200, {}, _shown(run)
        raise Problem(404, "Not Found")

    def _write_check(self, check: dict[str, Any], body: dict[str, Any]) -> None:
        if "status" in body:
            require(body, "status", {"queued", "in_progress", "completed"})
        if "conclusion" in body:
            require(body, "conclusion", CONCLUSIONS)
        elif body.get("status") == "completed":
            raise Problem(422, "Invalid request.", "a completed check run needs a conclusion")
        text(body, "external_id", 255)
        actions(body)
        address(body, "details_url")
        output = dict(body.get("output") or {})
        if output:
            for name in ("title", "summary"):
                if not output.get(name):
                    raise Problem(422, "Invalid request.", f'"{name}" wasn\'t supplied.')
            text(output, "summary", 65535)
            text(output, "text", 65535)
        annotations = output.pop("annotations", [])
        if len(annotations) > 50:
            raise Problem(
                422, "Invalid request.", "No subschema in anyOf matched. More than 50 annotations"
            )
        for annotation in annotations:
            require(annotation, "annotation_level", LEVELS)
            lines = [annotation.get("start_line"), annotation.get("end_line")]
            if (
                not annotation.get("path")
                or not annotation.get("message")
                or not all(type(line) is int and line >= 1 for line in lines)
            ):
                raise Problem(
                    422,
                    "Invalid request.",
                    "an annotation needs path, start_line, end_line, annotation_level, message",
                )
            title = annotation.get("title", "")
            if len(annotation["message"].encode()) > 65536 or len(title) > 255:
                raise Problem(422, "Invalid request.", "an annotation's text is too long")
        check.update({name: value for name, value in body.items() if name != "output"})
        if output:
            check["output"] = output
        check["annotations"].extend(annotations)

    def _list_comments(
        self, number: str, query: dict[str, str], **_: Any
    ) -> tuple[int, dict[str, str], Any]:
        self._pull_request(number)
        comments = [comment for comment in self.comments if comment["pull_request"] == int(number)]
        page, headers = self._page(
            comments, query, f"/repos/{self.moved or REPOSITORY}/issues/{number}/comments"
        )
        return 200, headers, page

    def _make_comment(
        self, number: str, body: Any, by_app: bool, **_: Any
    ) -> tuple[int, dict[str, str], Any]:
        self._pull_request(number)
        comment_text(body)
        comment = {
            "id": self._next(),
            "body": body["body"],
            "pull_request": int(number),
            "user": {"login": LOGIN},
        }
        if by_app:
            comment |= {
                "user": {"login": f"{LOGIN}[bot]"},
                "performed_via_github_app": {"id": int(APP), "client_id": "Iv1.of-the-tests"},
            }
        self.comments.append(comment)
        return 201, {}, comment

    def _change_comment(self, number: str, body: Any, **_: Any) -> tuple[int, dict[str, str], Any]:
        comment_text(body)
        for comment in self.comments:
            if comment["id"] == int(number):
                if comment["user"]["login"] not in (LOGIN, f"{LOGIN}[bot]"):
                    raise Problem(403, "Must have admin rights to Repository.")
                comment["body"] = body["body"]
                return 200, {}, comment
        raise Problem(404, "Not Found")

    def _page(
        self, rows: list[Any], query: dict[str, str], path: str
    ) -> tuple[list[Any], dict[str, str]]:
        size, number = (
            min(int(query.get("per_page", "30")), 100, self.most),
            int(query.get("page", "1")),
        )
        headers = {}
        if number * size < len(rows):
            following = urlencode({**query, "page": number + 1})
            headers["link"] = (
                f'<{self.url}{path}?{following}>; rel="next", <{self.url}{path}?page=99>; '
                'rel="last"'
            )
        return rows[(number - 1) * size : number * size], headers

    def _known(self, sha: str) -> None:
        if sha not in self.commits:
            raise Problem(422, f"No commit found for SHA: {sha}")

    def _pull_request(self, number: str) -> None:
        if int(number) not in self.pull_requests:
            raise Problem(404, "Not Found")


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _shown(check: Mapping[str, Any]) -> dict[str, Any]:
    output = {**check.get("output", {}), "annotations_count": len(check["annotations"])}
    return {
        **{name: value for name, value in check.items() if name != "annotations"},
        "output": output,
        "app": {"id": int(APP)},
    }

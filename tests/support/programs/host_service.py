"""The routes of device hosts (docs/protocol.md), as a test answers them: it keeps what comes."""

from __future__ import annotations

import gzip
import json
import threading
from collections import defaultdict, deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "host-token-of-the-tests"
GARBLED = 299
"""The status of an answer that claims a compression which it doesn't have, as a proxy may."""
Message = tuple[str, dict[str, Any]]
CLAIM, RESULTS, FINISH, HEALTH, HEARTBEAT = "claim", "results", "finish", "health", "heartbeat"


class HostService:
    """A server on loopback that gives out attempts; `stop` and `start` keep its port."""

    def __init__(self) -> None:
        self.chunks: dict[str, dict[str, Any]] = {}
        self.claimed: dict[str, str] = {}
        self.canceled: set[str] = set()
        self.over: set[str] = set()
        self.orders: dict[str, dict[str, Any]] = {}
        self.refusals: deque[tuple[str, int]] = deque()
        """(kind, status): the next requests of these kinds are refused so."""
        self.stalled: set[str] = set()
        """Kinds of requests that are not answered, for a minute."""
        self.messages: dict[str, deque[Message]] = defaultdict(deque)
        """Heartbeats and claims under HEARTBEAT, the others under RESULTS, in their order."""
        self.changed = threading.Condition()
        self.tokens = {TOKEN}
        self._server: ThreadingHTTPServer | None = None
        self._port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_PUT(self) -> None:
                self._answer()

            def do_POST(self) -> None:
                self._answer()

            def log_message(self, *_: Any) -> None:
                pass

            def _answer(self) -> None:
                content = self.rfile.read(int(self.headers["Content-Length"]))
                if self.server is not service._server:  # stopped: its open connections end, too
                    self.close_connection = True
                    return
                if self.headers.get("Content-Encoding") == "gzip":
                    content = gzip.decompress(content)
                token = self.headers.get("Authorization", "").removeprefix("Bearer ")
                if token not in service.tokens:
                    status, answer = 401, {"detail": "the token is unknown"}
                else:
                    path = self.path.removeprefix("/api/v1")
                    status, answer = service.take(path, json.loads(content))
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                if status == GARBLED:
                    self.send_header("Content-Encoding", "gzip")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._server.daemon_threads = True
        self._port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def take(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return the status and the answer to a request."""
        with self.changed:
            kind, attempt = _kind(path)
            self.changed.wait_for(lambda: kind not in self.stalled, 60)
            if self.refusals and self.refusals[0][0] == kind:
                _, status = self.refusals.popleft()
                return status, {"detail": "this can't be taken"}
            if kind == CLAIM:
                return self._claim(attempt, body)
            queue = self.messages[HEARTBEAT if kind == HEARTBEAT else RESULTS]
            queue.append((kind, {**body, "path": path} | ({"attempt": attempt} if attempt else {})))
            self.changed.notify_all()
            if kind == FINISH:
                self.over.add(attempt)
            subject = attempt or body.get("attempt")
            canceled = subject in self.canceled
            return 200, {"canceled": canceled, "orders": self.orders, "lease_s": 60.0}

    def next(self, queue: str, seconds: float) -> Message | None:
        """Return the oldest message of a queue; None if none comes in time."""
        with self.changed:
            waiting = self.messages[queue]
            self.changed.wait_for(lambda: bool(waiting), seconds)
            return waiting.popleft() if waiting else None

    def _claim(self, attempt: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        chunk = self.chunks.get(attempt)
        if chunk is None:
            return 404, {"detail": "no such attempt"}
        if self.claimed.setdefault(attempt, body["worker"]) != body["worker"]:
            return 409, {"detail": "another worker has it"}
        if attempt in self.canceled or attempt in self.over:
            return 410, {"detail": "it is over or canceled"}
        self.messages[HEARTBEAT].append((CLAIM, {**body, "attempt": attempt}))
        self.changed.notify_all()
        return 200, chunk


def _kind(path: str) -> tuple[str, str]:
    """Return the kind of a request and the attempt that it is about."""
    if path == "/hosts/self":
        return HEARTBEAT, ""
    if path == "/hosts/self/health":
        return HEALTH, ""
    attempt = path.removeprefix("/attempts/")[:36]
    return {":claim": CLAIM, ":finish": FINISH}.get(path[46:], RESULTS), attempt

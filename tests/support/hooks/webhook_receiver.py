"""A receiver of webhooks for tests: a real HTTP server that answers as told and keeps what it
got."""

from __future__ import annotations

import json
import socketserver
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from patience import WAIT_S


@dataclass(frozen=True)
class Reply:
    """A status, headers, and a gate that holds the answer back until it is open; `drips`: a byte
    now and then, until the gate is open."""

    status: int = 204
    headers: Mapping[str, str] = field(default_factory=dict)
    gate: threading.Event | None = None
    body: bytes = b""
    drips: str = ""
    """Where: in the "head", or in the "body"."""


@dataclass(frozen=True)
class Got:
    """One request."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def message(self) -> Any:
        return json.loads(self.body)


class _Server:
    """Serves in a thread until it is closed."""

    def _serve(self, server: socketserver.TCPServer) -> str:
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        self._thread.start()
        return f"127.0.0.1:{server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Receiver(_Server):
    """Answers with `replies` in turn, then with 204; on a free port where none is given."""

    def __init__(self, port: int = 0) -> None:
        self.got: list[Got] = []
        self.replies: list[Reply] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.got.append(Got(self.path, headers, body))
                reply = receiver.replies.pop(0) if receiver.replies else Reply()
                if reply.drips:
                    self._drip(reply)
                    return
                if reply.gate is not None:
                    reply.gate.wait(WAIT_S)
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)

            def _drip(self, reply: Reply) -> None:
                assert reply.gate is not None
                self.close_connection = True
                head = f"HTTP/1.1 {reply.status} x\r\n".encode()
                self.wfile.write(
                    head if reply.drips == "head" else head + b"content-length: 9999\r\n\r\n"
                )
                try:
                    while not reply.gate.wait(0.01):
                        self.wfile.write(b"x")
                except OSError:  # the other side has had enough
                    pass

            def log_message(self, *_: Any) -> None:
                pass

        self.url = (
            f"http://{self._serve(ThreadingHTTPServer(('127.0.0.1', port), Handler))}/hook?a=1"
        )


class MailServer(_Server):
    """Takes e-mail over SMTP, as far as a client without extensions asks; `got` are the
    messages."""

    def __init__(self) -> None:
        self.got: list[str] = []
        server = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self.wfile.write(b"220 test\r\n")
                while word := self.rfile.readline().strip().upper():
                    if word == b"DATA":
                        self.wfile.write(b"354 go on\r\n")
                        lines = list(iter(self.rfile.readline, b".\r\n"))
                        server.got.append(b"".join(lines).decode())
                    self.wfile.write(b"221 bye\r\n" if word == b"QUIT" else b"250 ok\r\n")

        self.host = self._serve(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler))


def wait_for_senders() -> None:
    """Wait for the threads of `gonogo_service.background.deliver.Deliver`."""
    until = time.monotonic() + WAIT_S
    for thread in threading.enumerate():
        if thread.name.startswith("deliver-"):
            thread.join(max(0.0, until - time.monotonic()))

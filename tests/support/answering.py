"""Servers that give every request one answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import BaseServer, StreamRequestHandler, TCPServer
from threading import Thread

GARBLED = (
    b"HELLO\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}",
    b"HTTP/1.1 500 No\r\nContent-Length: 9\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
)
"""Answers of a proxy that isn't well: no HTTP, cut, and not compressed as they say."""


@contextmanager
def answering(status: int, body: bytes = b"") -> Iterator[str]:
    """Yield its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Write no log."""

    with _serving(HTTPServer(("127.0.0.1", 0), Handler)) as url:
        yield url


@contextmanager
def garbling(answer: bytes) -> Iterator[str]:
    """Yield the address of one that sends these bytes, which may be no HTTP."""

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            while self.rfile.readline().strip():
                pass
            self.wfile.write(answer)

    with _serving(TCPServer(("127.0.0.1", 0), Handler)) as url:
        yield url


@contextmanager
def _serving(server: BaseServer) -> Iterator[str]:
    with server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()

"""A receiver of webhooks: a process of its own, which checks signatures and writes down what came.

`python -m benchmarks.chaos.receiver PORT FILE`; the secret is in CHAOS_SECRET. Every tenth message
is answered with 503 after it was written down, so that some come twice.
"""

from __future__ import annotations

import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count

from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError


def server(port: int, file: int, secret: str) -> ThreadingHTTPServer:
    """Return the server; a line of `file` is the id of a message, or "forged"."""
    checked, numbers = Webhook(secret), count(1)

    class Receiver(BaseHTTPRequestHandler):
        """Takes one message."""

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            try:
                checked.verify(body, dict(self.headers.items()))
                line = self.headers["webhook-id"]
            except WebhookVerificationError:
                line = "forged"
            os.write(file, f"{line}\n".encode())
            self.send_response(503 if next(numbers) % 10 == 0 else 204)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        """One that starts again at once on the same port."""

        allow_reuse_address = True
        daemon_threads = True

    return Server(("127.0.0.1", port), Receiver)


if __name__ == "__main__":
    lines = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    server(int(sys.argv[1]), lines, os.environ["CHAOS_SECRET"]).serve_forever()

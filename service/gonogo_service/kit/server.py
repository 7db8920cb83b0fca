"""The HTTP server of the app: uvicorn, with a limit of connections and an orderly end.

Time-outs of slow clients, TLS and floods are a proxy's work (docker-compose.yml has one).
"""

from __future__ import annotations

from collections.abc import Callable
from socket import socket
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from gonogo.settings import Settings
from gonogo_service.kit import networks

GRACE_S: Final = 3
"""Requests get this long when the server stops; `gonogo up` must be gone within 10 s altogether."""
LINGER_S: Final = 0.3
"""A stopping server still answers requests that arrive within this time on open connections."""
CLOSE: Final = (b"connection", b"close")


class Connection(H11Protocol):
    """A connection that outlives the stop for a moment.

    uvicorn closes idle connections at once: a request that is on its way would fail, although the
    next process could have answered it.
    """

    def shutdown(self) -> None:
        """Say in each further answer that it is the last one, then close."""
        if CLOSE not in self.server_state.default_headers:
            self.server_state.default_headers.append(CLOSE)
        self.loop.call_later(LINGER_S, super().shutdown)


class Server(uvicorn.Server):
    """A server that first ends open streams: it waits for every answer before it stops."""

    def __init__(self, config: uvicorn.Config, end_streams: Callable[[], None]) -> None:
        super().__init__(config)
        self._end_streams = end_streams

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        """End streams, answer what is open, and stop."""
        self._end_streams()
        await super().shutdown(sockets)


def make_server(
    app: Any, settings: Settings, end_streams: Callable[[], None], *, host: str, port: int
) -> Server:
    """Return the server of an app, not started yet; end_streams runs on its event loop."""
    return Server(
        uvicorn.Config(
            app,
            host=host,
            port=port,
            log_level=settings.log_level,
            access_log=settings.log_level == "debug",
            server_header=False,
            http=Connection,
            ws="none",
            limit_concurrency=settings.max_connections,
            timeout_graceful_shutdown=GRACE_S,
            proxy_headers=bool(settings.proxies),
            forwarded_allow_ips=networks.of_proxies(settings.proxies) or None,
        ),
        end_streams,
    )

"""The HTTP server of the app: uvicorn, with a limit of connections and an orderly end.

Time-outs of slow clients, TLS and floods are a proxy's work (docker-compose.yml has one).
"""

from __future__ import annotations

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


def make_server(app: Any, settings: Settings, *, host: str, port: int) -> uvicorn.Server:
    """Return the server of an app, not started yet."""
    return uvicorn.Server(
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
        )
    )

"""Connections of the HTTP server: their number, deadlines for headers and readers, an orderly end.

uvicorn has no such limits: a sender that never ends its headers, and a client that doesn't read its
answer, would hold a connection for ever.
When it stops, it closes a connection whose request is on its way but not yet read: that request
would fail although the next process could have answered it.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from gonogo.settings import Settings
from gonogo_service.kit.connection_places import Places

FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n"
    b"Connection: close\r\n\r\n"
)
CLOSE = (b"connection", b"close")
LINGER_S = 0.3
"""A stopping server still answers requests that arrive within this time on open connections."""
GONE = "connection_gone"
"""The key in a request's state: an asyncio.Event that is set when its connection has ended."""
REFUSE = "refuse_connection"
"""The key in a request's state: a function that sends a whole answer and closes the connection.

One call of the system sends it, where an answer by the usual way needs two and is put together in
half a millisecond."""
SLOWEST_BYTES = 32 * 1024
"""A client must take this much of a waiting answer within the deadline of a request's headers."""


def protocol(settings: Settings) -> type[H11Protocol]:
    """Return the class of connections for uvicorn's option `http`."""
    deadline_s, most = settings.header_deadline_s, settings.max_connections
    places = Places(most, settings.proxies)

    class Connection(H11Protocol):
        """A connection that is closed when a request's headers take too long."""

        _timer: asyncio.TimerHandle | None = None
        _reader_timer: asyncio.TimerHandle | None = None
        _leaving = False

        def __init__(
            self, config: Any, server_state: Any, app_state: dict[str, Any], _loop: Any = None
        ) -> None:
            self._gone = asyncio.Event()
            state = {**app_state, GONE: self._gone, REFUSE: self.refuse}
            super().__init__(config, server_state, state, _loop)

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if places.take(self, self.client[0] if self.client else ""):
                self._watch()
            else:
                transport.write(FULL)
                transport.close()

        def waits_for_client(self) -> bool:
            """Return whether headers, the rest of a body or a reader are due."""
            cycle = self.cycle
            if cycle is None or cycle.response_complete:
                return True
            return bool(cycle.more_body or self.flow.write_paused)

        def abort(self) -> None:
            """Close the connection at once."""
            self.transport.abort()

        def refuse(self, head: bytes, body: bytes) -> None:
            """Answer the request that has no answer yet, and close.

            head: the status line and headers, without the empty line after them.
            """
            self.server_state.total_requests += 1
            self.cycle.disconnected = True  # else the server would answer it once more
            defaults = self.server_state.default_headers
            lines = b"".join(b"%b: %b\r\n" % header for header in defaults)
            self.transport.write(head + lines + b"\r\n" + body)
            self.transport.close()

        def data_received(self, data: bytes) -> None:
            if self.transport.is_closing():
                return
            super().data_received(data)
            self._watch()
            if self._leaving:
                self._last_answer()

        def _should_upgrade(self) -> bool:
            """Speak HTTP only: other protocols would take the connection out of the limits."""
            return False

        def pause_writing(self) -> None:
            super().pause_writing()
            self._expect_reader()

        def resume_writing(self) -> None:
            self._stop_reader_timer()
            super().resume_writing()

        def _expect_reader(self) -> None:
            waiting = self.transport.get_write_buffer_size()
            self._reader_timer = self.loop.call_later(deadline_s, self._check_reader, waiting)

        def _check_reader(self, before: int) -> None:
            if self.transport.get_write_buffer_size() > before - SLOWEST_BYTES:
                self.transport.abort()
            else:
                self._expect_reader()

        def _stop_reader_timer(self) -> None:
            if self._reader_timer is not None:
                self._reader_timer.cancel()
                self._reader_timer = None

        def shutdown(self) -> None:
            """End after the answer that is being made, or after a moment without a request."""
            self._leaving = True
            self._last_answer()
            self.loop.call_later(LINGER_S, self._leave)

        def _last_answer(self) -> None:
            """Let the answer that is being made, if any, say that it is the last one."""
            cycle = self.cycle
            if cycle is not None and cycle.keep_alive and not cycle.response_complete:
                cycle.keep_alive = False
                cycle.scope["headers"] = [*cycle.scope["headers"], CLOSE]

        def _leave(self) -> None:
            is_idle = self.cycle is None or self.cycle.response_complete
            if is_idle and not self.transport.is_closing():
                self.transport.close()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop()
            self._stop_reader_timer()
            places.give_back(self)
            self._gone.set()
            super().connection_lost(exc)

        def _watch(self) -> None:
            """Start the deadline when headers are due, and stop it when they are there."""
            if self.conn.their_state is not h11.IDLE:
                self._stop()
            elif self._timer is None:
                self._timer = self.loop.call_later(deadline_s, self._late)

        def _stop(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _late(self) -> None:
            self._timer = None
            if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
                self.transport.close()

    return Connection

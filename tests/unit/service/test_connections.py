"""Connections on real sockets: nobody holds one for ever, and no network takes them all."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
import uvicorn

import event_loop
from gonogo_service.access.pace import A_SECOND, AT_ONCE, LONGEST_S, Pace
from gonogo_service.kit import connections
from gonogo_service.kit.networks import network_of
from gonogo_settings import Settings

LONG = 64 * 2**20


async def answer(scope: Any, receive: object, send: Callable[..., Awaitable[None]]) -> None:
    """An application with a short answer, and one that no buffer of the system can hold."""
    content = bytes(LONG) if scope["path"] == "/long" else b"ok"
    headers = [(b"content-length", str(len(content)).encode()), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": content})


class Hijacker(asyncio.Protocol):
    """A protocol that takes connections over, and says nothing."""

    def __init__(self, **parts: Any) -> None: ...


async def exchange(request: bytes) -> bytes:
    """Send a request; return what can be read after the server has closed the connection."""
    config = uvicorn.Config(
        answer,  # type: ignore[arg-type]
        http=connections.protocol(Settings(header_deadline_s=0.05)),
        ws=Hijacker,
        lifespan="off",
        log_level="error",
    )
    server = uvicorn.Server(config)
    received = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = asyncio.create_task(server.serve(sockets=[listener.dup()]))
        while not server.started:
            await asyncio.sleep(0.001)
        with socket.create_connection(listener.getsockname(), timeout=10) as client:
            client.sendall(request)
            while not server.server_state.connections and not server.server_state.total_requests:
                await asyncio.sleep(0.001)
            while server.server_state.connections:
                await asyncio.sleep(0.001)
            client.setblocking(False)
            with suppress(ConnectionResetError, BlockingIOError):
                while part := client.recv(2**20):
                    received += part
        server.should_exit = True
        await serving
    return bytes(received)


def test_a_client_that_does_not_read_its_answer_is_cut_off() -> None:
    received = event_loop.run(exchange(b"GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n"))
    assert len(received) < LONG


def test_no_other_protocol_takes_a_connection_out_of_the_limits() -> None:
    """uvicorn would hand it over where a package for websockets is installed."""
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    received = event_loop.run(exchange(b"GET / HTTP/1.1\r\nHost: localhost\r\n" + upgrade))
    assert received.startswith(b"HTTP/1.1 200 OK")


class Transport:
    """A transport of a client's address that notes what is written."""

    def __init__(self, client: str) -> None:
        self.client, self.written = client, b""

    def get_extra_info(self, name: str) -> Any:
        return {"peername": (self.client, 1), "sockname": ("::1", 2)}.get(name)

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None: ...

    def is_closing(self) -> bool:
        return False


@pytest.mark.parametrize(
    ("clients", "refused"),
    [
        (["2001:db8::1", "2001:db8::2", "2001:db8::3"], [False, False, True]),
        (["2001:db8::1", "2001:db8::2", "2001:db8:0:1::3"], [False, False, False]),
        (["192.0.2.1", "::ffff:192.0.2.1", "192.0.2.1"], [False, False, True]),
    ],
)
def test_a_network_has_its_share_of_the_connections(
    clients: list[str], refused: list[bool]
) -> None:
    """A host has 2^64 addresses of IPv6, so an address is no limit there."""

    async def play() -> list[bool]:
        config = uvicorn.Config(answer, lifespan="off")  # type: ignore[arg-type]
        config.load()
        state = uvicorn.server.ServerState()
        protocol = connections.protocol(Settings(max_connections=8))
        transports = [Transport(client) for client in clients]
        for transport in transports:
            protocol(config, state, {}).connection_made(transport)  # type: ignore[arg-type]
        return [transport.written.startswith(b"HTTP/1.1 503 ") for transport in transports]

    assert event_loop.run(play()) == refused


def test_who_sends_on_without_a_token_waits() -> None:
    pace = Pace()
    assert all(pace.hit("192.0.2.1", 100.0) <= 0 for _ in range(AT_ONCE))
    waits = [pace.hit("192.0.2.1", 100.0) for _ in range(3)]
    assert waits == pytest.approx([number / A_SECOND for number in (1, 2, 3)])
    for _ in range(1000):
        pace.hit("192.0.2.1", 100.0)
    assert pace.hit("192.0.2.1", 100.0) == LONGEST_S
    assert pace.hit("192.0.2.2", 100.0) < 0
    assert pace.hit("192.0.2.1", 100.0 + LONGEST_S + AT_ONCE / A_SECOND) < 0


def test_the_pace_forgets_addresses_that_owe_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gonogo_service.access.pace.FORGET_AT", 10)
    pace = Pace()
    for number in range(100):
        pace.hit(f"192.0.2.{number}", float(number))
    assert len(pace._free_at) <= 11
    assert network_of("192.0.2.1") == "192.0.2.1"

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
from gonogo.settings import Settings
from gonogo_service.kit import connections
from patience import WAIT_S

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


async def exchange(request: bytes, app: Any = answer, *, leave: bool = False) -> bytes:
    """Send a request; return what can be read after the connection has ended.

    leave: the client ends it as soon as the server works for it.
    """
    config = uvicorn.Config(
        app,
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
        with socket.create_connection(listener.getsockname(), timeout=WAIT_S) as client:
            client.sendall(request)
            while not server.server_state.connections and not server.server_state.total_requests:
                await asyncio.sleep(0.001)
            state = server.server_state
            while leave and not (state.tasks or state.total_requests):
                await asyncio.sleep(0.001)
            if leave:
                client.shutdown(socket.SHUT_RDWR)
            while state.connections or (leave and state.tasks):
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


def test_a_refusal_is_the_whole_answer_and_the_end(caplog: pytest.LogCaptureFixture) -> None:
    """The server neither answers once more nor takes it for a bug of the application."""

    async def refuse(scope: Any, receive: object, send: object) -> None:
        scope["state"][connections.REFUSE](b"HTTP/1.1 429 No\r\nContent-Length: 2\r\n", b"no")

    request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    received = event_loop.run(exchange(2 * request, refuse))
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 429 No\r\nContent-Length: 2\r\ndate: ")
    assert (body, caplog.records) == (b"no", [])


def test_no_other_protocol_takes_a_connection_out_of_the_limits() -> None:
    """uvicorn would hand it over where a package for websockets is installed."""
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    received = event_loop.run(exchange(b"GET / HTTP/1.1\r\nHost: localhost\r\n" + upgrade))
    assert received.startswith(b"HTTP/1.1 200 OK")


class Transport(asyncio.Transport):
    """A transport of a client's address that notes what is written, and whether it was cut off."""

    def __init__(self, client: str) -> None:
        super().__init__({"peername": (client, 1), "sockname": ("::1", 2)})
        self.written, self.aborted = b"", False

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None: ...

    def abort(self) -> None:
        self.aborted = True

    def is_closing(self) -> bool:
        return self.aborted


HALF = b"GET / HTTP/1.1\r\nX:"
UNDER_WAY = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
SLOW_BODY = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nx"


def arrive(
    senders: list[tuple[str, bytes]], *, most: int = 8, proxies: tuple[str, ...] = ()
) -> str:
    """Let senders connect and send, one after the other; return what became of each connection.

    `.` is held, `x` was closed for another one, and `-` was refused.
    """

    async def forever(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.Event().wait()

    async def play() -> str:
        config = uvicorn.Config(forever, lifespan="off")
        config.load()
        state = uvicorn.server.ServerState()
        protocol = connections.protocol(Settings(max_connections=most, proxies=proxies))
        transports = []
        for client, data in senders:
            transports.append(Transport(client))
            connection = protocol(config, state, {})
            connection.connection_made(transports[-1])
            if data and not transports[-1].written:
                connection.data_received(data)
        for task in state.tasks:
            task.cancel()
        return "".join(
            "-" if transport.written.startswith(b"HTTP/1.1 503 ") else ".x"[transport.aborted]
            for transport in transports
        )

    return event_loop.run(play())


@pytest.mark.parametrize(
    ("clients", "fates"),
    [
        (["2001:db8::1", "2001:db8::2", "2001:db8::3"], "..-"),
        (["2001:db8::1", "2001:db8::2", "2001:db8:0:1::3"], "..."),
        (["192.0.2.1", "::ffff:192.0.2.1", "192.0.2.1"], "..-"),
        (["127.0.0.2", "127.0.0.2", "127.0.0.2"], "..-"),
        (["127.0.0.1", "127.0.0.1", "127.0.0.1"], "..."),
        (["172.18.0.2", "::ffff:172.18.0.2", "172.18.0.2"], "..."),
        (["172.19.0.2", "172.19.0.2", "172.19.0.2"], "..-"),
    ],
)
def test_a_network_has_its_share_of_the_connections(clients: list[str], fates: str) -> None:
    """A host has 2^64 addresses of IPv6, so an address is no limit there."""
    senders = [(client, UNDER_WAY) for client in clients]
    assert arrive(senders, proxies=("172.18.0.0/16",)) == fates


@pytest.mark.parametrize("data", [HALF, SLOW_BODY, b""])
def test_a_few_networks_that_keep_us_waiting_hold_nothing_against_another(data: bytes) -> None:
    """The oldest connection of the largest holder makes room, and none that is worked for."""
    slow = [(f"192.0.2.{number % 4}", data) for number in range(7)]
    late = [("198.51.100.1", UNDER_WAY), ("198.51.100.2", UNDER_WAY)]
    assert arrive(slow + late) == "xx......."
    assert arrive([*slow, *late, ("192.0.2.3", data)]) == "xxx......."
    busy = [(client, UNDER_WAY) for client, _ in slow]
    assert arrive(busy + late) == ".......--"
    assert arrive([busy[0], *slow[1:], *late]) == ".x..x...."


def test_a_network_at_its_share_closes_its_own_oldest_connection() -> None:
    """So a client isn't kept out by another one behind the same address."""
    assert arrive([("192.0.2.1", HALF)] * 2 + [("192.0.2.1", UNDER_WAY)]) == "x.."


def test_proxies_and_this_machine_have_a_reserve() -> None:
    busy = [(f"192.0.2.{number}", UNDER_WAY) for number in range(8)]
    assert arrive([*busy, ("127.0.0.1", UNDER_WAY)]) == ".......-."
    slow = [(f"192.0.2.{number}", HALF) for number in range(7)]
    assert arrive([*slow, *[("127.0.0.1", UNDER_WAY)] * 9]) == "xxxxxxx........-"


def test_a_request_is_told_when_its_connection_ends() -> None:
    """Nothing waits for a client that is gone."""
    ended = []

    async def wait(scope: Any, receive: Any, send: Any) -> None:
        await scope["state"][connections.GONE].wait()
        ended.append(scope["path"])

    assert event_loop.run(exchange(UNDER_WAY, wait, leave=True)) == b""
    assert ended == ["/"]

"""The attackers of `python -m benchmarks.attack`: what they send, and how they are run."""

from __future__ import annotations

import json
import multiprocessing
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import httpx

from gonogo import urls
from gonogo_service.kit.body_limits import BodyLimits
from gonogo_service.kit.connection_places import NETWORK_SHARE
from gonogo_settings import Settings

SEED_LIST = 200_000
ATTACKER_NICE = 10
REPLACE_S = 0.05
WRONG = "sha256=" + "0" * 64
DELIVERY = {
    "X-GitHub-Event": "push",
    "X-GitHub-Delivery": "1",
    "X-Hub-Signature-256": WRONG,
    "Content-Type": "application/json",
}
HALF = b"GET / HTTP/1.1\r\nX:"
PATIENCE = httpx.Timeout(120)


@dataclass(frozen=True)
class Target:
    """The service, and what an attacker knows about it."""

    port: int
    tokens: tuple[str, ...]
    test: str

    @property
    def url(self) -> str:
        """Return the address of the service."""
        return f"http://127.0.0.1:{self.port}"

    def client(self, token: int | None = None) -> httpx.Client:
        """Return a client with one of the tokens, or as a stranger."""
        headers = {} if token is None else {"Authorization": f"Bearer {self.tokens[token]}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE, trust_env=False)

    def connect(self, text: bytes, source: str = "") -> socket.socket:
        """Open a connection, from an address of loopback, and send the text."""
        connection = socket.create_connection(
            ("127.0.0.1", self.port), source_address=(source, 0) if source else None
        )
        connection.sendall(text)
        return connection

    def send(self, text: bytes, source: str = "") -> None:
        """Send a request, or its beginning, and wait for the end of the connection."""
        with self.connect(text, source) as connection:
            while connection.recv(1000):
                pass

    def hold(self, text: bytes, source: str, count: int) -> None:
        """Hold so many connections with the beginning of a request; replace those that end."""
        with selectors.DefaultSelector() as connections:
            while True:
                with suppress(OSError):
                    while len(connections.get_map()) < count:
                        connections.register(self.connect(text, source), selectors.EVENT_READ)
                for key, _ in connections.select(0.1):
                    connections.unregister(key.fileobj)
                    key.fileobj.close()  # type: ignore[union-attr]
                time.sleep(REPLACE_S)


def heavy_reads(target: Target) -> Iterator[Callable[[], object]]:
    """Yield nine senders: six comparisons and three pages of a test, by three tokens."""
    for number in range(9):
        client = target.client(number % len(target.tokens))
        address = f"{urls.API}/compare?base=base&head=head" if number < 6 else target.test
        yield lambda client=client, address=address: client.get(address)  # type: ignore[misc]


def hostile_bodies(target: Target) -> Iterator[Callable[[], object]]:
    """Yield five senders: long lists of seeds, of the wrong type and of the right one."""
    job = {"test": {"kernel": "layernorm_bw", "shape": [32, 64]}, "build": "correct"}
    for number in range(5):
        client = target.client(number % len(target.tokens))
        seeds = ["x"] * SEED_LIST if number < 3 else list(range(SEED_LIST // 2))
        body = json.dumps({**job, "seeds": seeds})
        yield lambda client=client, body=body: client.post(  # type: ignore[misc]
            f"{urls.API}/jobs", content=body, headers={"Content-Type": "application/json"}
        )


def slow_body() -> bytes:
    """Return the beginning of a delivery whose signature has the right form."""
    fields = "".join(f"{name}: {value}\r\n" for name, value in DELIVERY.items())
    head = f"POST {urls.GITHUB_DELIVERIES} HTTP/1.1\r\nHost: localhost\r\n{fields}"
    return f"{head}Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n".encode()


def request(path: str, *fields: str) -> bytes:
    """Return a request without a token, after whose answer the connection ends."""
    return "\r\n".join(
        (f"GET {path} HTTP/1.1", "Host: localhost", "Connection: close", *fields, "", "")
    ).encode()


def strangers(target: Target) -> Iterator[Callable[[], object]]:
    """Yield 123 senders without a token: slow bodies, half headers, large unsigned deliveries."""
    yield from [lambda: target.send(slow_body())] * 20
    yield from [lambda: target.send(HALF)] * 100
    content = b"x" * 5_000_000
    for client in (target.client(), target.client(), target.client()):
        yield lambda client=client: client.post(  # type: ignore[misc]
            urls.GITHUB_DELIVERIES, content=content, headers=DELIVERY
        )


def behind_a_proxy(target: Target) -> Iterator[Callable[[], object]]:
    """Yield 64 senders of one client, whose address a trusted proxy names."""
    text = request(f"{urls.API}/jobs", "X-Forwarded-For: 192.0.2.1")
    yield from [lambda: target.send(text)] * 64


def open_send_close(target: Target) -> Iterator[Callable[[], object]]:
    """Yield ten senders that wait for no answer."""

    def leave() -> None:
        with target.connect(request(f"{urls.API}/jobs"), "127.0.0.2"):
            time.sleep(0.01)

    yield from [leave] * 10


def half_headers(target: Target) -> Iterator[Callable[[], object]]:
    """Yield five networks that together hold more than all connections."""
    for number in range(5):
        yield lambda number=number: target.hold(  # type: ignore[misc]
            HALF, f"127.0.0.{2 + number}", Settings().max_connections // NETWORK_SHARE
        )


def slow_bodies(target: Target) -> Iterator[Callable[[], object]]:
    """Yield four networks that together hold all places for deliveries."""
    limit = BodyLimits.of_settings(Settings()).of(urls.GITHUB_DELIVERIES)
    for number in range(limit.at_once // limit.of_sender):
        yield lambda number=number: target.hold(  # type: ignore[misc]
            slow_body(), f"127.0.0.{2 + number}", limit.of_sender
        )


def health_floods(target: Target) -> Iterator[Callable[[], object]]:
    """Yield sixteen senders of probes, from four networks."""
    for number in range(16):
        text = request(("/healthz", "/readyz")[number % 2])
        source = f"127.0.0.{2 + number // 4}"
        yield lambda text=text, source=source: target.send(text, source)  # type: ignore[misc]


Phase = Callable[[Target], Iterator[Callable[[], object]]]
TOGETHER: dict[str, Phase] = {
    "9 heavy reads": heavy_reads,
    "and 5 hostile bodies": hostile_bodies,
    "and 20 slow senders, 100 half headers, 3 deliveries of 5 MB": strangers,
}
"""Phases that add up."""
ALONE: dict[str, Phase] = {
    "a client behind a proxy, 64 requests at once": behind_a_proxy,
    "10 senders that open, send and close": open_send_close,
    "half headers from 5 networks on all connections": half_headers,
    "slow bodies from 4 networks in all places": slow_bodies,
    "16 floods of probes from 4 networks": health_floods,
}
"""Phases that run after those, each by itself."""


def attack(phase: str, target: Target) -> None:
    """Send what a phase adds, each sender in a thread of its own, until the process is killed."""
    os.nice(ATTACKER_NICE)

    def forever(send: Callable[[], object]) -> None:
        while True:
            with suppress(OSError, httpx.HTTPError):
                send()

    threads = [
        threading.Thread(target=forever, args=(send,), daemon=True)
        for send in (TOGETHER | ALONE)[phase](target)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@contextmanager
def attacking(phase: str, target: Target) -> Iterator[None]:
    """Attack in a process of its own: its threads must not share the probe's interpreter."""
    process = multiprocessing.get_context("spawn").Process(target=attack, args=(phase, target))
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()

"""A broker over TLS: clients and consumers take only a certificate that they can check."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from kombu.exceptions import OperationalError

from gonogo_workers.queue import make_app, redis_client
from servers import RedisServer
from tls_hop import Authority, hop


def ask_client(url: str) -> bool:
    """Ping as processes do that send."""
    return bool(redis_client(url).ping())


def ask_consumer(url: str) -> bool:
    """Ping as processes do that take messages."""
    with make_app(url).connection_for_read() as connection:
        connection.ensure_connection(max_retries=1, timeout=5)
        return bool(connection.default_channel.client.ping())


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def port(redis_server: RedisServer, authority: Authority) -> Iterator[int]:
    """A port with a certificate for localhost."""
    with hop(redis_server.port, authority.issue("localhost")) as tls:
        yield tls


ASK = pytest.mark.parametrize("ask", [ask_client, ask_consumer])


@ASK
def test_a_certificate_of_a_named_authority_is_taken(
    ask: Callable[[str], bool], port: int, authority: Authority
) -> None:
    assert ask(f"rediss://localhost:{port}/0?ssl_ca_certs={authority.file}")


@ASK
def test_a_certificate_of_an_unknown_authority_is_refused(
    ask: Callable[[str], bool], port: int
) -> None:
    with pytest.raises((redis.ConnectionError, OperationalError), match="CERTIFICATE_VERIFY"):
        ask(f"rediss://localhost:{port}/0")


@ASK
def test_a_certificate_of_another_host_is_refused(
    ask: Callable[[str], bool], redis_server: RedisServer, authority: Authority
) -> None:
    with (
        hop(redis_server.port, authority.issue("elsewhere.example.org")) as port,
        pytest.raises((redis.ConnectionError, OperationalError), match="CERTIFICATE_VERIFY"),
    ):
        ask(f"rediss://localhost:{port}/0?ssl_ca_certs={authority.file}")

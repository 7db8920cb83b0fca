"""The broker: what the doctor says of it, and over TLS, only a certificate that can be checked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from kombu.exceptions import OperationalError

import gonogo.settings
from gonogo_service.cli.operate import doctor
from gonogo_workers.queue import make_app, redis_client
from servers import RedisServer
from tls_hop import Authority, hop


def test_the_doctor_checks_its_policy_and_its_clock(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GONOGO_BROKER_URL", redis_url)
    gonogo.settings.load.cache_clear()
    with redis.Redis.from_url(redis_url) as client:
        before = str(client.config_get("maxmemory-policy")["maxmemory-policy"])
        try:
            client.config_set("maxmemory-policy", "allkeys-lru")
            policy, clock = doctor.findings(["redis", "clock"])
        finally:
            client.config_set("maxmemory-policy", before)
    assert (policy.state, clock.state) == ("fail", "ok")
    assert "maxmemory-policy allkeys-lru" in policy.message
    assert "ahead of the broker's" in clock.message


def ask_client(url: str) -> bool:
    """Ping as processes do that send."""
    return bool(redis_client(url).ping())


def ask_consumer(url: str) -> bool:
    """Ping as processes do that take messages."""
    with make_app(url).connection_for_read() as connection:
        connection.ensure_connection(max_retries=1, timeout=5)
        return bool(connection.default_channel.client.ping())


@pytest.mark.parametrize("ask", [ask_client, ask_consumer])
def test_only_a_certificate_of_this_host_and_a_named_authority_is_taken(
    ask: Callable[[str], bool], redis_server: RedisServer, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    named = f"?ssl_ca_certs={authority.file}"
    for host, query, is_taken in (
        ("localhost", named, True),
        ("localhost", "", False),
        ("elsewhere.example.org", named, False),
    ):
        with hop(redis_server.port, authority.issue(host)) as port:
            url = f"rediss://localhost:{port}/0{query}"
            if is_taken:
                assert ask(url)
                continue
            refused = (redis.ConnectionError, OperationalError)
            with pytest.raises(refused, match="CERTIFICATE_VERIFY"):
                ask(url)

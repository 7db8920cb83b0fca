"""Addresses of senders as failures count them, and of proxies as uvicorn believes them."""

from __future__ import annotations

import pytest
from uvicorn.middleware.proxy_headers import _TrustedHosts

from gonogo_service.kit.networks import network_of, of_proxies

PROXIES = ("127.0.0.1", "172.18.0.0/16", "fd00::/8")


@pytest.mark.parametrize(
    ("client", "is_proxy"),
    [
        ("127.0.0.1", True),
        ("::ffff:127.0.0.1", True),
        ("172.18.3.4", True),
        ("::ffff:172.18.3.4", True),
        ("fd00::7", True),
        ("127.0.0.2", False),
        ("172.19.0.1", False),
        ("2001:db8::1", False),
        ("unknown", False),
        ("", False),
    ],
)
def test_the_headers_of_named_proxies_are_believed_and_nobody_elses(
    client: str, is_proxy: bool
) -> None:
    assert (client in _TrustedHosts(of_proxies(PROXIES))) == is_proxy


def test_what_is_no_address_counts_as_one_sender() -> None:
    assert {network_of(""), network_of("a socket")} == {"unknown"}

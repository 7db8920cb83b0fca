"""The network of a sender's address, by which failures count; those of proxies and of hosts."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Final

IPV6_NETWORK: Final = 64
"""A host has this much of an IPv6 address to itself, so it counts as one."""
MAPPED_BITS: Final = 96
"""The bits before an IPv4 address in an IPv6 address that stands for it (RFC 4291)."""


def network_of(client: str) -> str:
    """Return the address by which a sender is counted: of IPv6 the network."""
    try:
        address = ipaddress.ip_address(client)
    except ValueError:
        return "unknown"
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((int(address), IPV6_NETWORK), strict=False))
    return str(address)


def is_within(client: str, networks: Iterable[str]) -> bool:
    """Return whether an address is in one of the networks; one of IPv4 also as IPv6 writes it."""
    try:
        address = ipaddress.ip_address(client)
    except ValueError:
        return False
    address = getattr(address, "ipv4_mapped", None) or address
    return any(address in ipaddress.ip_network(network) for network in networks)


def of_proxies(names: Iterable[str]) -> list[str]:
    """Return the networks of proxies, those of IPv4 also as a socket of IPv6 sees them."""
    networks = [ipaddress.ip_network(name) for name in names]
    return [str(network) for network in networks] + [
        f"::ffff:{network.network_address}/{MAPPED_BITS + network.prefixlen}"
        for network in networks
        if network.version == 4
    ]

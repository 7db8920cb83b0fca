"""The network of a sender's address: limits count by it."""

from __future__ import annotations

import ipaddress
from typing import Final

IPV6_NETWORK: Final = 64
"""A host has this much of an IPv6 address to itself, so it counts as one."""


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

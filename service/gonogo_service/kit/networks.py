"""The network of a sender's address, by which limits count, and the networks of proxies."""

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


class Networks:
    """Addresses and networks, such as 10.0.0.7 and 172.18.0.0/16: which senders are in them?"""

    def __init__(self, names: Iterable[str]) -> None:
        self._networks = [ipaddress.ip_network(name) for name in names]

    def __contains__(self, client: str) -> bool:
        try:
            address = ipaddress.ip_address(client)
        except ValueError:
            return False
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self._networks)

    def names(self) -> list[str]:
        """Return the networks, those of IPv4 also as a socket of IPv6 sees them."""
        return [str(network) for network in self._networks] + [
            f"::ffff:{network.network_address}/{MAPPED_BITS + network.prefixlen}"
            for network in self._networks
            if network.version == 4
        ]

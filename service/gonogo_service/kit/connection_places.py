"""Places of connections: every network has its share, and whoever keeps us waiting makes room."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from gonogo_service.kit.networks import Networks, network_of

NETWORK_SHARE = 4
"""One network may have this part of all connections, unless it is a proxy or this machine."""
RESERVE = 16
"""Connections that only proxies and this machine may have: probes and a proxy's first requests."""
RESERVE_SHARE = 8
"""The reserve is this part of all connections at the most."""
LOCAL = ("127.0.0.1", "::1")
"""Addresses that are exempt beside the proxies: other addresses of loopback have a share."""
_EXEMPT = "exempt"


class Occupant(Protocol):
    """A connection that holds a place."""

    def waits_for_client(self) -> bool:
        """Return whether the client's next bytes, or its reading, are due; no work is done."""

    def abort(self) -> None:
        """Close it at once."""


class Places:
    """The connections of each network, oldest first.

    When they are all taken, the oldest connection of the network that holds most, of those that
    wait for their client, is closed for the next one. So half headers, slow bodies and answers that
    nobody reads hold no place against others, from however few or many networks they come.
    """

    def __init__(self, most: int, proxies: Iterable[str] = ()) -> None:
        self._most = most
        self._of_network = max(1, most // NETWORK_SHARE)
        self._of_strangers = most - min(RESERVE, most // RESERVE_SHARE)
        self._exempt = Networks([*LOCAL, *proxies])
        self._occupants: dict[str, dict[Occupant, None]] = {}
        self._networks: dict[Occupant, str] = {}

    def take(self, connection: Occupant, client: str) -> bool:
        """Take a place for a connection from this address, and say whether there is one.

        "" is a client without an address, such as a proxy on a Unix socket.
        """
        is_exempt = not client or client in self._exempt
        network = _EXEMPT if is_exempt else network_of(client)
        if not self._has_room(network) and not self._make_room(network):
            return False
        self._occupants.setdefault(network, {})[connection] = None
        self._networks[connection] = network
        return True

    def give_back(self, connection: Occupant) -> None:
        """Free the place of a connection, if it has one."""
        network = self._networks.pop(connection, None)
        if network is None:
            return
        occupants = self._occupants[network]
        del occupants[connection]
        if not occupants:
            del self._occupants[network]

    def _count(self, network: str) -> int:
        return len(self._occupants.get(network, ()))

    def _has_room(self, network: str) -> bool:
        if len(self._networks) >= self._most:
            return False
        strangers = len(self._networks) - self._count(_EXEMPT)
        return network == _EXEMPT or (
            strangers < self._of_strangers and self._count(network) < self._of_network
        )

    def _make_room(self, network: str) -> bool:
        """Close a connection that waits for its client. Say whether there was one."""
        for holder in self._holders(network):
            for connection in self._occupants[holder]:
                if connection.waits_for_client():
                    self.give_back(connection)
                    connection.abort()
                    return True
        return False

    def _holders(self, network: str) -> list[str]:
        """Return the networks that may lose a connection to this one, the largest first.

        With the new connection none of them would have fewer than it. Of those with as many, the
        one that came first is first.
        """
        count = self._count(network)
        if network != _EXEMPT and count >= self._of_network:
            return [network]
        least = 0 if network == _EXEMPT else count + 1
        others = [
            name
            for name, occupants in self._occupants.items()
            if name not in {_EXEMPT, network} and len(occupants) >= least
        ]
        others.sort(key=self._count, reverse=True)
        return [*others, network] if count and network != _EXEMPT else others

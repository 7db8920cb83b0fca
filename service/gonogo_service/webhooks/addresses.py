"""The addresses that webhooks may have.

A name is resolved once and its addresses are checked; the connection goes to a checked address.
Otherwise a subscription could reach hosts that only this machine can reach (server-side request
forgery), also by a name whose answer changes between the check and the connection.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

MAX_CHARS = 2000
Resolve = Callable[[str, int], Sequence[str]]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_LOCAL = ipaddress.IPv6Network("64:ff9b:1::/48")
"""Local-use translation (RFC 8215)."""
_LAST_BITS = tuple(map(ipaddress.IPv6Network, ("::/96", "::ffff:0:0:0/96", "64:ff9b::/96")))
"""The last 32 bits are an IPv4 address."""


class Refused(Exception):
    """The address may not be connected to."""


class Pinned(NamedTuple):
    """A URL whose host is an IP address, and the name for the Host header and the certificate."""

    url: str
    host: str
    name: str


def problem_of(url: str) -> tuple[str, str] | None:
    """Return what is wrong with a URL, and what is allowed; None if it may be used."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as problem:
        return f"is not a URL: {problem}", "https://host/path"
    absolute = parts.scheme in ("http", "https") and parts.hostname and port != 0
    if not absolute or len(url) > MAX_CHARS or not (url.isascii() and url.isprintable()):
        limit = f"http:// or https://, at most {MAX_CHARS} characters"
        return "must be an absolute address", limit
    if parts.username is not None or parts.password is not None or parts.fragment:
        return "must have no user, password or fragment", "https://host/path"
    return None


def networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Parse the networks of the settings. Raises ValueError."""
    return tuple(ipaddress.ip_network(text) for text in texts)


def resolve(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a name. Raises OSError."""
    answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in answers))


def pin(url: str, allowed: Sequence[Network], resolver: Resolve) -> Pinned:
    """Resolve a URL's name and check its addresses.

    Raises Refused for a private address, and OSError when the name can't be resolved.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    candidates = resolver(host, parts.port or (443 if parts.scheme == "https" else 80))
    if not candidates:
        raise OSError(f"{host} has no address")
    for candidate in candidates:  # one private address makes the name untrusted
        if not permitted(candidate, allowed):
            raise Refused(
                f"{host} is {candidate}, which is not a public address "
                "(GONOGO_WEBHOOK_PRIVATE allows networks)"
            )
    port = "" if parts.port is None else f":{parts.port}"
    address, name = (f"[{text}]" if ":" in text else text for text in (candidates[0], host))
    url = urlunsplit((parts.scheme, address + port, parts.path or "/", parts.query, ""))
    return Pinned(url, name + port, host)


def permitted(address: str, allowed: Sequence[Network]) -> bool:
    """Return whether an address is public, or in a network that the settings allow.

    An IPv6 address may represent an IPv4 one (RFC 4291, 6052, 3056, 4380), which must then be
    public, too.
    """
    value = ipaddress.ip_address(address.partition("%")[0])
    inner = _inner_ipv4(value)
    both = [part for part in (value, inner) if part is not None]
    if any(part in network for part in both for network in allowed):
        return True
    if isinstance(value, ipaddress.IPv6Address):
        if value.is_site_local or value in _LOCAL:
            return False
        if value.ipv4_mapped is not None:
            both.remove(value)
    return all(part.is_global and not part.is_multicast for part in both)


def _inner_ipv4(
    value: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> ipaddress.IPv4Address | None:
    if isinstance(value, ipaddress.IPv4Address):
        return None
    if value.teredo is not None:
        return value.teredo[1]
    if any(value in network for network in _LAST_BITS):
        return ipaddress.IPv4Address(int(value) & 0xFFFFFFFF)
    return value.ipv4_mapped or value.sixtofour

"""Allowed addresses of webhooks.

A name is resolved once and its addresses are checked; the connection goes to a checked address.
Otherwise a subscription could reach hosts that only this machine can reach (server-side request
forgery), also by a name whose answer changes between the check and the connection.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from gonogo_service.kit.problems import BadField

MAX_CHARS = 2000
Resolve = Callable[[str, int], Sequence[str]]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Refused(Exception):
    """The address may not be connected to."""


@dataclass(frozen=True)
class Pinned:
    """A URL whose host is an IP address, and the name for the certificate and the Host header."""

    url: str
    host: str
    name: str


def check(url: str) -> str:
    """Return the URL if it is absolute http or https, without user and fragment.

    Raises BadField.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as problem:
        raise BadField(
            "url", url, f"is not a URL: {problem}", limit="https://host/path"
        ) from problem
    if (
        len(url) > MAX_CHARS
        or parts.scheme not in ("http", "https")
        or not parts.hostname
        or port == 0
        or not url.isascii()
    ):
        raise BadField(
            "url",
            url,
            "must be an absolute address",
            limit=f"http:// or https://, at most {MAX_CHARS} characters",
        )
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise BadField(
            "url", url, "must have no user, password or fragment", limit="https://host/path"
        )
    return url


def networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Parse the networks of the settings. Raises ValueError."""
    return tuple(ipaddress.ip_network(text) for text in texts)


def resolve(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a name. Raises OSError."""
    return list(
        dict.fromkeys(
            str(socket_address[0])
            for *_, socket_address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )
    )


def pin(url: str, allowed: Sequence[Network], resolver: Resolve) -> Pinned:
    """Resolve a URL's name and check its addresses.

    Raises Refused for a private address, and OSError when the name can't be resolved.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    candidates = resolver(host, port)
    if not candidates:
        raise OSError(f"{host} has no address")
    for candidate in candidates:  # one private address makes the name untrusted
        if not permitted(candidate, allowed):
            raise Refused(
                f"{host} is {candidate}, which is not a public address "
                "(GONOGO_WEBHOOK_PRIVATE allows networks)"
            )
    address = candidates[0]
    literal = f"[{address}]" if ":" in address else address
    shown = f"[{host}]" if ":" in host else host
    name = shown if parts.port is None else f"{shown}:{parts.port}"
    netloc = literal if parts.port is None else f"{literal}:{parts.port}"
    return Pinned(
        urlunsplit((parts.scheme, netloc, parts.path or "/", parts.query, "")), name, host
    )


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
    if isinstance(value, ipaddress.IPv6Address) and (value.is_site_local or value in _LOCAL):
        return False
    mapped = isinstance(value, ipaddress.IPv6Address) and value.ipv4_mapped is not None
    checked = [part for part in (None if mapped else value, inner) if part is not None]
    return all(part.is_global and not part.is_multicast for part in checked)


_LOCAL = ipaddress.IPv6Network("64:ff9b:1::/48")
"""Local-use translation (RFC 8215)."""
_LAST_BITS = networks(["::/96", "::ffff:0:0:0/96", "64:ff9b::/96"])
"""The last 32 bits are an IPv4 address."""


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

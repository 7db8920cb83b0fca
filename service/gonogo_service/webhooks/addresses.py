"""Where a message may go: the address is resolved once, checked, and the connection is made to
exactly what was checked.

Otherwise a subscription could be used to reach what only this machine can reach (server-side
request forgery), also by a name whose answer changes between the check and the connection.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from gonogo_service.kit.problems import BadField

MOST_CHARS = 2000
Resolve = Callable[[str, int], Sequence[str]]
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Refused(Exception):
    """The address may not be connected to."""


@dataclass(frozen=True)
class Pinned:
    """A URL whose host is an address, and the host's name for the certificate and the Host
    header.
    """

    url: str
    host: str
    name: str


def check(url: str) -> str:
    """An absolute http or https URL without user and fragment. Raises BadField."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as problem:
        raise BadField("url", url, f"is no URL: {problem}", limit="https://host/path") from problem
    if (
        len(url) > MOST_CHARS
        or parts.scheme not in ("http", "https")
        or not parts.hostname
        or port == 0
        or not url.isascii()
    ):
        raise BadField(
            "url",
            url,
            "must be an absolute address",
            limit=f"http:// or https://, at most {MOST_CHARS} characters",
        )
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise BadField(
            "url", url, "must have no user, password or fragment", limit="https://host/path"
        )
    return url


def networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Networks from settings. Raises ValueError."""
    return tuple(ipaddress.ip_network(text) for text in texts)


def resolve(host: str, port: int) -> Sequence[str]:
    """The addresses of a name. Raises OSError."""
    return list(
        dict.fromkeys(
            str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )
    )


def pin(url: str, allowed: Sequence[Network], resolver: Resolve = resolve) -> Pinned:
    """Resolve and check. Raises Refused for a private address, OSError when the name can't be
    resolved.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    found = resolver(host, port)
    if not found:
        raise OSError(f"{host} has no address")
    for each in found:  # all of them: a name with one private address is none to trust
        if not permitted(each, allowed):
            raise Refused(
                f"{host} is {each}, which is no public address (GONOGO_WEBHOOK_PRIVATE allows networks)"
            )
    address = found[0]
    literal = f"[{address}]" if ":" in address else address
    shown = f"[{host}]" if ":" in host else host
    name = shown if parts.port is None else f"{shown}:{parts.port}"
    netloc = literal if parts.port is None else f"{literal}:{parts.port}"
    return Pinned(
        urlunsplit((parts.scheme, netloc, parts.path or "/", parts.query, "")), name, host
    )


def permitted(address: str, allowed: Sequence[Network]) -> bool:
    """Whether an address is public, or in one of the networks that the settings allow.

    An IPv6 address may stand for an IPv4 one (RFC 4291, 6052, 3056, 4380): then that one must be
    public, too.
    """
    value = ipaddress.ip_address(address.partition("%")[0])
    inner = _stands_for(value)
    if any(each in network for each in (value, inner) if each is not None for network in allowed):
        return True
    if isinstance(value, ipaddress.IPv6Address) and (
        value.is_site_local or any(value in network for network in _LOCAL)
    ):
        return False
    mapped = isinstance(value, ipaddress.IPv6Address) and value.ipv4_mapped is not None
    found = [each for each in (None if mapped else value, inner) if each is not None]
    return all(each.is_global and not each.is_multicast for each in found)


_LOCAL = networks(["64:ff9b:1::/48"])
"""Translation inside a site (RFC 8215)."""
_LAST_BITS = networks(["::/96", "::ffff:0:0:0/96", "64:ff9b::/96"])
"""The last 32 bits are an IPv4 address."""


def _stands_for(
    value: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> ipaddress.IPv4Address | None:
    if isinstance(value, ipaddress.IPv4Address):
        return None
    if value.teredo is not None:
        return value.teredo[1]
    if any(value in network for network in _LAST_BITS):
        return ipaddress.IPv4Address(int(value) & 0xFFFFFFFF)
    return value.ipv4_mapped or value.sixtofour

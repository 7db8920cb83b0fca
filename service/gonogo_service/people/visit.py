"""The parts of a request that access depends on, before anybody is identified."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.types import Scope

from gonogo import urls

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
HEALTH = frozenset({"/healthz", "/readyz"})
SIGNED = frozenset({urls.GITHUB_DELIVERIES, urls.CI_DELIVERIES})
"""Addresses that verify a signature instead of a token."""
JOIN = f"{urls.API}/hosts:join"
"""It takes a one-time code instead of a token."""
PUBLIC = HEALTH | SIGNED | {"/login", JOIN}
COOKIE, SECURE_COOKIE = "gonogo_session", "__Host-gonogo_session"
FORWARDED = frozenset(
    {
        *("forwarded", "via", "x-real-ip", "x-client-ip", "x-cluster-client-ip", "true-client-ip"),
        *("cf-connecting-ip", "fastly-client-ip", "fly-client-ip", "x-original-forwarded-for"),
    }
)
"""Headers by which proxies say for whom they ask; with them, all that begin with X-Forwarded-."""


@dataclass(frozen=True)
class Visit:
    """The parts of a request that access depends on."""

    method: str
    path: str
    host: str
    scheme: str
    client: str
    headers: Headers

    @classmethod
    def of(cls, scope: Scope) -> Visit:
        """Read the visit from the ASGI scope."""
        headers = Headers(scope=scope)
        client = scope.get("client")
        host = headers.get("host", "").lower()
        return cls(
            scope["method"],
            scope["path"],
            host,
            scope.get("scheme", "http"),
            client[0] if client else "",
            headers,
        )

    @property
    def public(self) -> bool:
        """Return whether the address needs no principal."""
        return self.path in PUBLIC or self.path.startswith("/static/")

    @property
    def badge(self) -> bool:
        """Return whether the address is that of a badge, which a setting makes public."""
        return self.method in SAFE_METHODS and self.path.startswith(f"{urls.BADGES}/")

    @property
    def on_loopback(self) -> bool:
        """Return whether the caller is a process of this machine, and not a proxy."""
        forwarded = any(
            name in FORWARDED or name.startswith("x-forwarded") for name in self.headers
        )
        return not forwarded and is_loopback(self.client)

    def cookie(self) -> str:
        """Return the session cookie's value, "" without one.

        Over https only the __Host- cookie counts, because no other site can set it.
        """
        text = self.headers.get("cookie")
        return cookie_parser(text).get(self.cookie_name, "") if text else ""

    @property
    def secure(self) -> bool:
        """Return whether cookies must be Secure: always, except plain http to a loopback name."""
        return self.scheme == "https" or not (
            is_loopback(bare_host(self.host)) or bare_host(self.host) == "localhost"
        )

    @property
    def cookie_name(self) -> str:
        """Return the name of the session cookie."""
        return SECURE_COOKIE if self.secure else COOKIE


def bare_host(host: str) -> str:
    """Return the host without its port, in lower case, and IPv6 without brackets."""
    try:
        return urlsplit("//" + host).hostname or ""
    except ValueError:
        return ""


def is_loopback(address: str) -> bool:
    """Return whether the text is a loopback IP address."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False

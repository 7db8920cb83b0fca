"""The outermost layer: Host and Origin, who is asking, CSRF, limits of failures, security headers,
problems for what nobody caught.

Everything is refused unless it is allowed here, so that a page or an endpoint that forgets about
access is closed, not open.
"""

from __future__ import annotations

import hmac
import ipaddress
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from anyio import to_thread
from limits import RateLimitItemPerMinute
from limits.storage import MemoryStorage
from limits.strategies import FixedWindowRateLimiter
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gonogo import urls
from gonogo_service.access import auth, principals
from gonogo_service.access.context import Context
from gonogo_service.kit import refusals
from gonogo_service.kit.body_limits import BodyLimits
from gonogo_service.kit.problems import Problem

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
SECURITY_HEADERS = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
HEALTH = frozenset({"/healthz", "/readyz"})
SIGNED = frozenset({urls.GITHUB_DELIVERIES, urls.CI_DELIVERIES})
"""Addresses that verify a signature of their own."""
PUBLIC = HEALTH | SIGNED | {"/login"}
FORMS = frozenset({"/logout", "/flags"})
"""Addresses of plain forms, which can't send headers: they take the CSRF token as the field
`csrf_token` and check it themselves."""
COOKIE, SECURE_COOKIE = "gonogo_session", "__Host-gonogo_session"
CSRF_HEADER = "X-CSRF-Token"
TOKEN_FAILURES = RateLimitItemPerMinute(30)
LOGIN_ATTEMPTS = RateLimitItemPerMinute(10)


@dataclass(frozen=True)
class Visit:
    """The parts of a request that decide about access."""

    method: str
    path: str
    host: str
    scheme: str
    client: str
    headers: Headers

    @classmethod
    def of(cls, scope: Scope) -> Visit:
        """From the ASGI scope."""
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
        """Whether the address needs nobody's name."""
        return self.path in PUBLIC or self.path.startswith("/static/")

    @property
    def on_loopback(self) -> bool:
        """Whether the caller is a process of this machine, and no proxy that speaks for someone
        else.
        """
        forwarded = "forwarded" in self.headers or "x-forwarded-for" in self.headers
        return not forwarded and is_loopback(self.client)

    def cookie(self) -> str:
        """The value of the session cookie, "" without one. Over https only the __Host- one counts,
        which no other site can plant.
        """
        return cookie_parser(self.headers.get("cookie", "")).get(self.cookie_name, "")

    @property
    def secure(self) -> bool:
        """Whether cookies must be Secure: always, but for plain http to a loopback name."""
        return self.scheme == "https" or not (
            is_loopback(bare_host(self.host)) or bare_host(self.host) == "localhost"
        )

    @property
    def cookie_name(self) -> str:
        """The name of the session cookie."""
        return SECURE_COOKIE if self.secure else COOKIE


class FailureLimits:
    """Counts failed tokens and login attempts per address, in this process's memory."""

    def __init__(self) -> None:
        self._limiter = FixedWindowRateLimiter(MemoryStorage())

    def failed_token(self, client: str) -> None:
        """Count a refused token; Problem 429 once there are too many. Valid tokens are never held
        up by the failures of others.
        """
        if not self._limiter.hit(TOKEN_FAILURES, "token", client):
            raise self._too_many(TOKEN_FAILURES, "token", client)

    def login_attempt(self, client: str) -> None:
        """Count an attempt to log in; Problem 429 once there are too many."""
        if not self._limiter.hit(LOGIN_ATTEMPTS, "login", client):
            raise self._too_many(LOGIN_ATTEMPTS, "login", client)

    def _too_many(self, item: RateLimitItemPerMinute, what: str, client: str) -> Problem:
        wait = max(
            1, round(self._limiter.get_window_stats(item, what, client).reset_time - time.time())
        )
        return Problem(
            429,
            f"Too many failures from this address: at most {item.amount} a minute.",
            slug="too-many-failures",
            headers={"Retry-After": str(wait)},
        )


class Edge:
    """The middleware; see the module's first lines."""

    def __init__(
        self, app: ASGIApp, context: Context, limits: FailureLimits, bodies: BodyLimits
    ) -> None:
        self.app = app
        self.context = context
        self.limits = limits
        self.bodies = bodies
        own = urlsplit(context.settings.url or "")
        self.hosts = {bare_host(host) for host in context.settings.hosts} | (
            {own.hostname} if own.hostname else set()
        )
        self.origin = f"{own.scheme}://{own.netloc}".lower() if own.netloc else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        visit, started, status = Visit.of(scope), time.perf_counter(), 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                _decorate(MutableHeaders(raw=message.setdefault("headers", [])), visit)
            await send(message)

        try:
            response = await self._admit(scope, visit)
            await (response or self.app)(scope, receive, send_with_headers)
        except Exception as error:
            problem = refusals.from_exception(error, limit=self.bodies.of(visit.path))
            if problem.status == 500:
                refusals.log_unforeseen(error, method=visit.method, path=visit.path)
            if status:
                raise  # the answer has begun: only a broken connection can say that it is not whole
            await refusals.respond(problem, scope)(scope, receive, send_with_headers)
        finally:
            self.context.metrics.observe(
                visit.method, _template(scope), status, time.perf_counter() - started
            )

    async def _admit(self, scope: Scope, visit: Visit) -> Response | None:
        """Let the request in (None, with its principal in the scope), answer it here, or raise the
        Problem that refuses it.
        """
        if visit.path not in HEALTH and bare_host(visit.host) not in self.hosts:
            raise Problem(
                421,
                f"This service does not answer to the name {visit.host[:100]!r}; see GONOGO_HOSTS.",
                slug="host",
            )
        if b"%00" in scope.get("raw_path", b"") or b"%00" in scope.get("query_string", b""):
            raise Problem(400, "An address can't hold the character NUL.")
        length = visit.headers.get("content-length", "0")
        limit = self.bodies.of(visit.path)
        if length.isdigit() and int(length) > limit.size:
            raise refusals.too_large(limit, int(length))
        bearer = visit.headers.get("authorization")
        if visit.method not in SAFE_METHODS and bearer is None:
            self._check_origin(visit)
        state: dict[str, Any] = scope.setdefault("state", {})
        state["visit"], state["limits"], state["principal"] = visit, self.limits, None
        if visit.public:
            return None
        principal = state["principal"] = await self._identify(visit, bearer)
        if principal is None:
            if visit.method == "GET" and "text/html" in visit.headers.get("accept", ""):
                target = scope.get("raw_path", b"/").decode("latin-1") + (
                    "?" + q if (q := scope["query_string"].decode("latin-1")) else ""
                )
                return RedirectResponse("/login?next=" + quote(target, safe=""), status_code=303)
            raise principals.unauthorised(
                "This needs a token (Authorization: Bearer gng_...) or a login."
            )
        if (
            principal.kind == "session"
            and visit.method not in SAFE_METHODS
            and visit.path not in FORMS
        ):
            check_csrf(principal, visit.headers.get(CSRF_HEADER, ""))
        return None

    async def _identify(self, visit: Visit, bearer: str | None) -> principals.Principal | None:
        if bearer is not None:
            scheme, _, text = bearer.partition(" ")
            principal = (
                await to_thread.run_sync(auth.by_token, self.context, text.strip())
                if scheme.lower() == "bearer"
                else None
            )
            if principal is None:
                self.limits.failed_token(visit.client)
                raise principals.unauthorised(
                    "This token is not valid: mistyped, unknown or revoked."
                )
            return principal
        if cookie := visit.cookie():
            principal = await to_thread.run_sync(auth.by_cookie, self.context, cookie)
            if principal is not None:
                return principal
        return principals.LOCAL if self.context.settings.embedded and visit.on_loopback else None

    def _check_origin(self, visit: Visit) -> None:
        """A browser says where an unsafe request comes from; only pages of this service may send
        one with the user's cookies.
        """
        origin = visit.headers.get("origin")
        if origin is None:
            if visit.headers.get("sec-fetch-site", "none") not in {"none", "same-origin"}:
                raise Problem(
                    403,
                    "Requests that change something are not taken from other sites.",
                    slug="origin",
                )
            return
        if origin.lower() != self.origin and origin.lower() not in {
            f"http://{visit.host}",
            f"https://{visit.host}",
        }:
            raise Problem(
                403,
                f"Requests that change something are not taken from {origin[:100]!r}.",
                slug="origin",
            )


def check_csrf(principal: principals.Principal, given: str) -> None:
    """Problem 403 unless the CSRF token is that of the login."""
    if not principal.csrf or not hmac.compare_digest(given.encode(), principal.csrf.encode()):
        raise Problem(
            403,
            f"The CSRF token is missing or wrong: send the page's own in {CSRF_HEADER}.",
            slug="csrf",
        )


def bare_host(host: str) -> str:
    """A Host header or origin's host without its port, in lower case, IPv6 without brackets."""
    try:
        return urlsplit("//" + host).hostname or ""
    except ValueError:
        return ""


def is_loopback(address: str) -> bool:
    """Whether an IP address in text is one of this machine's own."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _decorate(headers: MutableHeaders, visit: Visit) -> None:
    for name, value in SECURITY_HEADERS.items():
        headers[name] = value
    headers.setdefault("Cache-Control", "no-store")
    if visit.scheme == "https":
        headers["Strict-Transport-Security"] = "max-age=31536000"


def _template(scope: Scope) -> str:
    """The route's template: metrics must not grow a series per job."""
    return str(getattr(scope.get("route"), "path", "unmatched"))

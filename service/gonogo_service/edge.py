"""The outermost middleware.

It checks Host, Origin and CSRF tokens, identifies the principal, limits failed attempts, and adds
security headers. It turns uncaught exceptions into problem documents. Everything is denied unless
it is allowed here, so that a page or an endpoint that forgets about access is closed, not open.
"""

from __future__ import annotations

import hmac
import time
from typing import Any
from urllib.parse import quote, urlsplit

from anyio import to_thread
from starlette.datastructures import MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gonogo_service import refusals
from gonogo_service.kit import principals
from gonogo_service.kit.body_limits import COMPLETE, BodyLimits, has_body, is_of_host
from gonogo_service.kit.database.encoding import timestamp, utcnow
from gonogo_service.kit.problems import Problem
from gonogo_service.people import auth, bounds
from gonogo_service.people.context import Context
from gonogo_service.people.failures import FailureLimits
from gonogo_service.people.quotas import RequestQuota
from gonogo_service.people.visit import HEALTH, SAFE_METHODS, Visit, bare_host

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; form-action 'self'; frame-ancestors 'none'; "
    "base-uri 'none'"
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
FORMS = frozenset({"/logout", "/flags"})
"""Addresses of plain forms, which can't send headers.

They read the CSRF token from the field `csrf_token`, and check it themselves.
"""
CSRF_HEADER = "X-CSRF-Token"
EXPIRES_HEADER = "GoNoGo-Token-Expires"
"""In answers to a token that ends within two weeks: when it does."""


class Edge:
    """The middleware; the module's docstring describes it."""

    def __init__(
        self, app: ASGIApp, context: Context, limits: FailureLimits, bodies: BodyLimits
    ) -> None:
        self.app = app
        self.context = context
        self.limits = limits
        self.requests = RequestQuota(context.settings)
        self.bodies = bodies
        url = urlsplit(context.settings.url or "")
        self.hosts = {bare_host(host) for host in context.settings.hosts} | (
            {url.hostname} if url.hostname else set()
        )
        self.origin = f"{url.scheme}://{url.netloc}".lower() if url.netloc else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        visit, started, status = Visit.of(scope), time.perf_counter(), 0
        state = scope.setdefault("state", {})

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(raw=message.setdefault("headers", []))
                _decorate(headers, visit, state.get("principal"))
                if has_body(scope) and not state.get(COMPLETE):
                    # else the server would read a body that nobody wants to its end, for ever
                    headers["Connection"] = "close"
            await send(message)

        try:
            response = await self._admit(scope, visit)
            await (response or self.app)(scope, receive, send_with_headers)
            if visit.method not in SAFE_METHODS and not is_of_host(visit.path) and status < 400:
                self.context.notifier.notify()  # a change may be work for the background
        except Exception as error:
            problem = refusals.from_exception(error, limit=self.bodies.of(visit.path))
            if problem.status == 500:
                refusals.log_unexpected(error, method=visit.method, path=visit.path)
            if status:
                raise  # the response has begun: only a broken connection shows that it is cut
            await refusals.respond(problem, scope)(scope, receive, send_with_headers)
        finally:
            # the route's template, so that metrics don't get a series per job
            route = str(getattr(scope.get("route"), "path", "unmatched"))
            seconds = time.perf_counter() - started
            self.context.metrics.observe(visit.method, route, status, seconds)

    async def _admit(self, scope: Scope, visit: Visit) -> Response | None:
        """Admit the request (None, with its principal in the scope), or answer it here.

        Raises the Problem that rejects it.
        """
        if visit.path not in HEALTH and bare_host(visit.host) not in self.hosts:
            raise Problem(
                421,
                f"Unknown host name {visit.host[:100]!r}: add it to GONOGO_HOSTS.",
                slug="host",
            )
        if b"%00" in scope.get("raw_path", b"") or b"%00" in scope.get("query_string", b""):
            raise Problem(400, "An address can't contain the character NUL.")
        length = visit.headers.get("content-length", "0")
        limit = self.bodies.of(visit.path)
        if length.isdigit() and int(length) > limit.size:
            raise refusals.too_large(limit, int(length))
        bearer = visit.headers.get("authorization")
        if visit.method not in SAFE_METHODS and bearer is None:
            self._check_origin(visit)
        state: dict[str, Any] = scope.setdefault("state", {})
        state["visit"], state["limits"], state["principal"] = visit, self.limits, None
        if visit.public or (self.context.settings.public_badges and visit.badge):
            return None
        principal = state["principal"] = await self._identify(visit, bearer)
        if principal is None:
            if visit.method == "GET" and "text/html" in visit.headers.get("accept", ""):
                target = scope.get("raw_path", b"/").decode("latin-1") + (
                    "?" + q if (q := scope["query_string"].decode("latin-1")) else ""
                )
                return RedirectResponse("/login?next=" + quote(target, safe=""), status_code=303)
            raise principals.unauthorized(
                "This needs a token (Authorization: Bearer gng_...) or a login."
            )
        if (principal.kind == "host") is not is_of_host(visit.path):
            detail = "The routes of hosts take tokens of hosts, which open no other address."
            raise Problem(403, detail, slug="scope")
        self.requests.hit(principal.id, principal.name)
        if (
            principal.kind == "session"
            and visit.method not in SAFE_METHODS
            and visit.path not in FORMS
        ):
            check_csrf(principal, visit.headers.get(CSRF_HEADER, ""))
        if principal.bounded and visit.path != "/logout":
            query = scope.get("query_string", b"").decode("latin-1")
            place = (visit.method, visit.path, query)
            await to_thread.run_sync(bounds.check_address, self.context, principal, *place)
        return None

    async def _identify(self, visit: Visit, bearer: str | None) -> principals.Principal | None:
        if bearer is not None:
            scheme, _, text = bearer.partition(" ")
            answer = (
                await to_thread.run_sync(auth.by_bearer, self.context, text.strip(), visit.client)
                if scheme.lower() == "bearer"
                else auth.Refusal("mistyped")
            )
            if isinstance(answer, auth.Refusal):
                await to_thread.run_sync(self.limits.refused, "token", visit.client, answer)
                raise answer.problem
            return answer
        if cookie := visit.cookie():
            principal = await to_thread.run_sync(auth.by_cookie, self.context, cookie)
            if principal is not None:
                return principal
        settings = self.context.settings
        is_open = settings.embedded and not settings.loopback_login and visit.on_loopback
        return principals.LOCAL if is_open else None

    def _check_origin(self, visit: Visit) -> None:
        """Raise Problem 403 for an unsafe request from another site.

        Browsers say where a request comes from. Only this service's pages may use a user's cookies.
        """
        origin = visit.headers.get("origin")
        if origin is None:
            is_ours = visit.headers.get("sec-fetch-site", "none") in {"none", "same-origin"}
            source = "other sites"
        else:
            own_origins = {self.origin, f"http://{visit.host}", f"https://{visit.host}"}
            is_ours, source = origin.lower() in own_origins, repr(origin[:100])
        if not is_ours:
            detail = f"Requests that change data are not allowed from {source}."
            raise Problem(403, detail, slug="origin")


def check_csrf(principal: principals.Principal, given: str) -> None:
    """Raise Problem 403 unless the CSRF token is that of the login."""
    if not principal.csrf or not hmac.compare_digest(given.encode(), principal.csrf.encode()):
        raise Problem(
            403,
            f"The CSRF token is missing or wrong: send the page's token in {CSRF_HEADER}.",
            slug="csrf",
        )


def _decorate(
    headers: MutableHeaders, visit: Visit, principal: principals.Principal | None
) -> None:
    if principal is not None and (end := principal.soon_over(utcnow())) is not None:
        headers[EXPIRES_HEADER] = timestamp(end)
    for name, value in SECURITY_HEADERS.items():
        headers[name] = value
    headers.setdefault("Cache-Control", "no-store")
    if visit.scheme == "https":
        headers["Strict-Transport-Security"] = "max-age=31536000"

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
from gonogo_service.kit.body_limits import COMPLETE, BodyLimits, has_body
from gonogo_service.kit.connection_places import LOCAL
from gonogo_service.kit.connections import GONE, REFUSE
from gonogo_service.kit.database.encoding import timestamp, utcnow
from gonogo_service.kit.networks import Networks
from gonogo_service.kit.problems import Problem
from gonogo_service.people import auth, bounds, principals
from gonogo_service.people.context import Context
from gonogo_service.people.failures import FailureLimits
from gonogo_service.people.pace import BeyondPace, Pace
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
        self.pace = Pace(context.settings.max_connections)
        # apart from the others: a flood of anything else must not make a process look dead
        self.probes = Pace(context.settings.max_connections, waiting=0)
        self.unpaced_probes = Networks([*LOCAL, *context.settings.proxies])
        self.bodies = bodies
        self._refusals: dict[str, tuple[bytes, bytes]] = {}
        """The head and the body of the answer to a request beyond the pace, by its scheme."""
        url = urlsplit(context.settings.url or "")
        self.hosts = {bare_host(host) for host in context.settings.hosts} | (
            {url.hostname} if url.hostname else set()
        )
        self.origin = f"{url.scheme}://{url.netloc}".lower() if url.netloc else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        visit, started, status, waited_s = Visit.of(scope), time.perf_counter(), 0, 0.0
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
            if _is_anonymous(visit):
                # before anything is done for it
                waited_s = await self._take_turn(scope, visit)
                response = await self._admit(scope, visit)
            else:
                try:
                    response = await self._admit(scope, visit)
                finally:
                    if state.get("principal") is None:
                        waited_s = await self._take_turn(scope, visit)
            if waited_s and GONE in state and state[GONE].is_set():
                return
            await (response or self.app)(scope, receive, send_with_headers)
        except BeyondPace as refusal:
            await self._refuse(refusal, visit, scope, receive, send)
            status = refusal.status
        except Exception as error:
            problem = refusals.from_exception(error, limit=self.bodies.of(visit.path))
            if problem.status == 500:
                refusals.log_unexpected(error, method=visit.method, path=visit.path)
            if status:
                raise  # the response has begun: only a broken connection shows that it is cut
            await refusals.respond(problem, scope)(scope, receive, send_with_headers)
        finally:
            self.context.metrics.observe(
                visit.method, _template(scope), status, time.perf_counter() - started - waited_s
            )

    async def _refuse(
        self, problem: BeyondPace, visit: Visit, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answer a request beyond the pace as cheaply as can be: floods are made of them."""
        refuse = scope["state"].get(REFUSE)
        if refuse is not None and visit.scheme in self._refusals:
            head, body = self._refusals[visit.scheme]
        else:
            response = refusals.plain(problem)
            headers = MutableHeaders(raw=response.raw_headers)
            _decorate(headers, visit, None)
            if refuse is None:
                await response(scope, receive, send)
                return
            head, body = b"HTTP/1.1 429 Too Many Requests\r\n", bytes(response.body)
            head += b"".join(b"%b: %b\r\n" % header for header in headers.raw)
            self._refusals[visit.scheme] = head, body
        refuse(head, b"" if visit.method == "HEAD" else body)

    async def _take_turn(self, scope: Scope, visit: Visit) -> float:
        """Let a stranger wait for its turn; return the seconds.

        Raises Problem 429 for one who sends more than `Pace` lets through.
        """
        if self._is_open_to(visit):
            return 0.0
        if visit.path in HEALTH:
            if visit.client not in self.unpaced_probes:
                self.probes.hit(visit.client, time.monotonic())
            return 0.0
        if (
            visit.public
            and (cookie := visit.cookie())
            and self.pace.is_spent(visit.client)
            and await to_thread.run_sync(auth.by_cookie, self.context, cookie) is not None
        ):
            return 0.0  # the files of a page that a user reads
        return await self.pace.wait(visit.client, scope["state"].get(GONE))

    def _is_open_to(self, visit: Visit) -> bool:
        settings = self.context.settings
        return settings.embedded and not settings.loopback_login and visit.on_loopback

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
                await to_thread.run_sync(auth.by_token, self.context, text.strip())
                if scheme.lower() == "bearer"
                else auth.Refusal("mistyped")
            )
            if isinstance(answer, auth.Refusal):
                await to_thread.run_sync(self.limits.refused_token, visit.client, answer)
                raise principals.unauthorized(answer.words)
            return answer
        if cookie := visit.cookie():
            principal = await to_thread.run_sync(auth.by_cookie, self.context, cookie)
            if principal is not None:
                return principal
        return principals.LOCAL if self._is_open_to(visit) else None

    def _check_origin(self, visit: Visit) -> None:
        """Raise Problem 403 for an unsafe request from another site.

        Browsers say where a request comes from. Only this service's pages may use a user's cookies.
        """
        origin = visit.headers.get("origin")
        if origin is None:
            if visit.headers.get("sec-fetch-site", "none") not in {"none", "same-origin"}:
                raise Problem(
                    403,
                    "Requests that change data are not allowed from other sites.",
                    slug="origin",
                )
            return
        if origin.lower() != self.origin and origin.lower() not in {
            f"http://{visit.host}",
            f"https://{visit.host}",
        }:
            raise Problem(
                403,
                f"Requests that change data are not allowed from {origin[:100]!r}.",
                slug="origin",
            )


def _is_anonymous(visit: Visit) -> bool:
    """Return whether it has neither a login nor what could be a token."""
    token = visit.headers.get("authorization", "").partition(" ")[2]
    return not auth.well_formed(token.strip()) and not visit.cookie()


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


def _template(scope: Scope) -> str:
    """Return the route's template, so that metrics don't get a series per job."""
    return str(getattr(scope.get("route"), "path", "unmatched"))

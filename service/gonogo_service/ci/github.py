"""A client of GitHub's REST API (https://docs.github.com/rest), with a token or as an App.

An App's key makes tokens of an hour for each installation. Where the App isn't installed, the token
speaks.

GitHubError      no answer, or "later": the same request may succeed soon
├── Limited      the rate limit: no request is allowed before a certain time
└── Refused      GitHub rejects it: a token without the right, an unknown commit, a wrong field
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import httpx
import jwt
from cachetools import TTLCache
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from jwt.algorithms import RSAAlgorithm

from gonogo.settings import Settings
from gonogo.settings.release import release
from gonogo_service.kit.database.encoding import decode, encode, utcnow
from gonogo_service.webhooks.sending import requested_delay

API_VERSION = "2022-11-28"
CONNECT_S, ANSWER_S = 5.0, 20.0
PER_PAGE, MAX_PAGES, MAX_REDIRECTS = 100, 50, 3
JWT_FROM, JWT_UNTIL = timedelta(minutes=-1), timedelta(minutes=9)
"""A JWT may live for at most 10 minutes, and must not begin in GitHub's future."""
TOKEN_S, INSTALLATION_S = 55 * 60.0, 300.0
"""An installation's token lives for an hour. A repository's installation is asked for again."""
MAX_CACHED = 10_000
SECONDARY_WAIT, MIN_WAIT, MAX_WAIT = timedelta(minutes=1), timedelta(seconds=1), timedelta(hours=1)
"""Where GitHub names no time; where it names none that is ahead; the longest of its windows."""
LIMITED = (403, 429)


class GitHubError(Exception):
    """A failed request. The text has the method, the path and GitHub's message; never a token."""


class Limited(GitHubError):
    """Too many requests; the next one is allowed at `until`."""

    def __init__(self, message: str, until: datetime) -> None:
        super().__init__(message)
        self.until = until


class Refused(GitHubError):
    """A status of 400 to 499, for which a retry is useless."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Grant(NamedTuple):
    """The authorization of a request, and the name of the rate limit that it counts against."""

    authorization: str
    name: str
    app: str | None = None
    """The App's id: only an App may write check runs"""


class GitHub:
    """A client for the API at `url`, for use in one thread."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        app: str | None = None,
        key: RSAPrivateKey | None = None,
    ) -> None:
        self._url, self._token, self._app, self._key = url.rstrip("/"), token, app, key
        self._installations = TTLCache[str, Any](MAX_CACHED, INSTALLATION_S, timer=time.time)
        self._tokens = TTLCache[int, str](MAX_CACHED, TOKEN_S, timer=time.time)
        self._limited_until: dict[str, datetime] = {}
        self._logins: dict[str, str | None] = {}
        headers = {
            "accept": "application/vnd.github+json",
            "x-github-api-version": API_VERSION,
            "user-agent": f"GoNoGo/{release()}",
            "content-type": "application/json",
        }
        timeout = httpx.Timeout(ANSWER_S, connect=CONNECT_S)
        self._client = httpx.Client(headers=headers, timeout=timeout, follow_redirects=False)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def call(
        self, method: str, repository: str, path: str, body: Mapping[str, Any] | None = None
    ) -> Any:
        """Send a request about a repository ("owner/name"); return the answer's JSON.

        Raises GitHubError.
        """
        return _json(
            self._ask(method, self._url + _repository(repository) + path, repository, body)
        )

    def create(self, repository: str, path: str, body: Mapping[str, Any]) -> int:
        """POST something; return its number. Raises GitHubError."""
        created = self.call("POST", repository, path, body)
        if not isinstance(created, Mapping) or not isinstance(created.get("id"), int):
            raise GitHubError("GitHub's answer has no id")
        return int(created["id"])

    def pages(self, repository: str, path: str) -> Iterator[Any]:
        """Yield the pages of a list, at most MAX_PAGES. Raises GitHubError."""
        url: str | None = self._url + _repository(repository) + path
        for _ in range(MAX_PAGES):
            if url is not None:
                answer = self._ask("GET", url, repository)
                yield _json(answer)
                url = answer.links.get("next", {}).get("url")

    def may_check(self, repository: str) -> bool:
        """Return whether check runs can be written there: only an App may. Raises GitHubError."""
        return self._grant(repository).app is not None

    def find_comment(self, repository: str, pull_request: int, begins: str) -> int | None:
        """Return the number of our first comment on a pull request with this beginning.

        Comments of other authors don't count. Raises GitHubError.
        """
        for page in self.pages(repository, f"/issues/{pull_request}/comments?per_page={PER_PAGE}"):
            for comment in page:
                is_like_ours = str(comment.get("body") or "").startswith(begins)
                if is_like_ours and self._is_by_us(comment, repository):
                    return int(comment["id"])
        return None

    def _is_by_us(self, comment: Mapping[str, Any], repository: str) -> bool:
        """Return whether the App or the token's user wrote a comment; only they can change it."""
        grant = self._grant(repository)
        if grant.app is not None:
            app = comment.get("performed_via_github_app") or {}
            return grant.app in {str(app.get("id")), str(app.get("client_id"))}
        if grant.name not in self._logins:
            try:
                user = _json(self._request("GET", f"{self._url}/user", grant))
                self._logins[grant.name] = str(user["login"])
            except Refused:  # a token of a GitHub workflow belongs to no user
                self._logins[grant.name] = None
        login = self._logins[grant.name]
        return login is None or login == (comment.get("user") or {}).get("login")

    def _grant(self, repository: str) -> Grant:
        """Return the authorization for a repository. Raises GitHubError."""
        installation = self._installation(repository)
        if installation is not None:
            if installation not in self._tokens:
                path = f"/app/installations/{installation}/access_tokens"
                self._tokens[installation] = str(self._as_app("POST", path)["token"])
            authorization = f"Bearer {self._tokens[installation]}"
            return Grant(authorization, f"installation {installation}", self._app)
        if self._token is None:
            raise Refused(f"the App {self._app} is not installed on {repository}", 404)
        return Grant(f"Bearer {self._token}", "token")

    def _installation(self, repository: str) -> int | None:
        if self._app is None or repository in self._installations:
            return self._installations.get(repository)
        try:
            answer = self._as_app("GET", f"{_repository(repository)}/installation")
        except Refused as problem:
            if problem.status != 404:
                raise
            answer = {"id": None}
        installation: int | None = answer["id"]
        self._installations[repository] = installation
        return installation

    def _as_app(self, method: str, path: str) -> Any:
        now = utcnow()
        claims = {"iat": now + JWT_FROM, "exp": now + JWT_UNTIL, "iss": self._app}
        assert self._key is not None
        grant = Grant(f"Bearer {jwt.encode(claims, self._key, 'RS256')}", "app")
        return _json(self._request(method, self._url + path, grant))

    def _ask(
        self, method: str, url: str, repository: str, body: Mapping[str, Any] | None = None
    ) -> httpx.Response:
        """Send a request, and again with a new token after a 401: the old one may be revoked."""
        try:
            return self._request(method, url, self._grant(repository), body)
        except Refused as problem:
            installation = self._installations.pop(repository, None)
            if problem.status != 401 or installation is None:
                raise
            self._tokens.pop(installation, None)
        return self._request(method, url, self._grant(repository), body)

    def _request(
        self, method: str, url: str, grant: Grant, body: Mapping[str, Any] | None = None
    ) -> httpx.Response:
        limited_until = self._limited_until.get(grant.name)
        if limited_until is not None and utcnow() < limited_until:
            raise Limited("GitHub's rate limit was reached before", limited_until)
        content = None if body is None else encode(body)
        headers = {"authorization": grant.authorization}
        for _ in range(1 + MAX_REDIRECTS):
            if _origin(url) != _origin(self._url):  # no other server must get the token
                raise Refused(f"{method}: GitHub names another server, {url[:200]}", 400)
            path = urlsplit(url).path
            try:
                answer = self._client.request(method, url, content=content, headers=headers)
            except (httpx.HTTPError, httpx.InvalidURL, OSError) as problem:
                text = f"{method} {path}: {type(problem).__name__}: {problem}"
                raise GitHubError(text[:500]) from problem
            if not answer.has_redirect_location:
                break
            url = str(httpx.URL(url).join(answer.headers["location"]))  # a renamed repository
        status, until = answer.status_code, limit_of(answer, utcnow())
        if until is not None:
            self._limited_until[grant.name] = until
        if answer.is_success:
            return answer
        message = f"{method} {path}: {status} {_message(answer)}"[:500]
        if until is not None and status in LIMITED:
            raise Limited(message, until)
        if status >= 500 or status in (408, 425):
            raise GitHubError(message)
        raise Refused(message, status)


def client_of(settings: Settings) -> GitHub | None:
    """Return a client for the settings; None if they have neither a token nor an App.

    Raises ValueError for an invalid App key.
    """
    token = None if settings.github_token is None else settings.github_token.get_secret_value()
    app, pem = settings.github_app_id, settings.github_app_key
    if app is None or pem is None:
        return None if token is None else GitHub(settings.github_url, token=token)
    key = read_key(pem.get_secret_value())
    return GitHub(settings.github_url, token=token, app=app, key=key)


def read_key(text: str) -> RSAPrivateKey:
    r"""Return the App's key from PEM text, or from a PEM file. Raises ValueError.

    In PEM text the line ends may be written as \n.
    """
    pem = text.replace("\\n", "\n")
    if "-----BEGIN" not in text:
        try:
            pem = Path(text).read_text(encoding="ascii", errors="replace")
        except OSError as problem:
            raise ValueError(
                f"GONOGO_GITHUB_APP_KEY is neither PEM text nor a readable file: {problem.strerror}"
            ) from None
    try:
        key = RSAAlgorithm(RSAAlgorithm.SHA256).prepare_key(pem)
    except (ValueError, TypeError, jwt.InvalidKeyError):
        key = None
    if not isinstance(key, RSAPrivateKey):
        raise ValueError(
            "GONOGO_GITHUB_APP_KEY holds no private RSA key, or one with a password "
            "(needs: a PEM key from GitHub)"
        )
    return key


def limit_of(answer: httpx.Response, now: datetime) -> datetime | None:
    """Return the time of the next allowed request; None if the answer reports no limit.

    GitHub reports it by `retry-after`, by `x-ratelimit-remaining: 0` with `x-ratelimit-reset`, or,
    for its secondary limits, only in the text.
    """
    headers = answer.headers
    spent = headers.get("x-ratelimit-remaining", "").strip() == "0"
    seconds = headers.get("x-ratelimit-reset", "").strip()
    known = seconds.isascii() and seconds.isdigit() and len(seconds) <= 11
    reset = datetime.fromtimestamp(int(seconds), UTC) - now if known else None
    if answer.status_code not in LIMITED:
        return now + min(reset, MAX_WAIT) if spent and reset and reset > timedelta(0) else None
    wait = requested_delay(headers.get("retry-after"), now)
    if wait is None and spent:
        wait = SECONDARY_WAIT if reset is None else reset
    text = answer.text.lower()
    if wait is None and (
        answer.status_code == 429 or "rate limit" in text or "abuse detection" in text
    ):
        wait = SECONDARY_WAIT
    return None if wait is None else now + min(max(wait, MIN_WAIT), MAX_WAIT)


def shortened(text: str, most: int) -> str:
    """Return the text, cut to at most `most` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def _repository(text: str) -> str:
    """Return the path of "owner/name". Raises Refused for anything else."""
    owner, slash, name = text.partition("/")
    if not slash or not owner or not name or "/" in name or {owner, name} & {".", ".."}:
        raise Refused(f"{text[:100]!r} is not a repository (needs: owner/name)", 404)
    return f"/repos/{quote(owner, safe='')}/{quote(name, safe='')}"


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url.lower())
    return parts.scheme, parts.netloc


def _json(answer: httpx.Response) -> Any:
    try:
        return decode(answer.content)
    except ValueError as problem:
        request = answer.request
        raise GitHubError(
            f"{request.method} {request.url.path}: the answer is not JSON"
        ) from problem


def _message(answer: httpx.Response) -> str:
    """Return GitHub's message, with the fields that it names."""
    try:
        content = decode(answer.content)
        fields = "; ".join(
            str(error.get("message") or f"{error.get('field')} {error.get('code')}")
            for error in content.get("errors", ())
        )
        return f"{content.get('message', '')}{': ' + fields if fields else ''}"
    except (ValueError, AttributeError, TypeError):
        return answer.text[:200]

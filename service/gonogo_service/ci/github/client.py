"""A client for the parts of GitHub's REST API that answers need: https://docs.github.com/rest.

Requests can be repeated without creating a second status, check run or comment, because existing
ones are looked up first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import httpx

from gonogo.settings.release import release
from gonogo_service.ci.github import limits
from gonogo_service.ci.github.access import Access, Grant
from gonogo_service.ci.github.problems import Away, Limited, Refused
from gonogo_service.kit.database.encoding import decode, encode, utcnow

API_VERSION = "2022-11-28"
CONNECT_S, ANSWER_S = 5.0, 20.0
PER_PAGE = 100
MAX_PAGES = 50
MAX_REDIRECTS = 3
MAX_DESCRIPTION = 140
MAX_ANNOTATIONS = 50
"""Maximum number per request; further requests append the rest."""
MAX_TEXT = 65_535
"""Maximum number of characters of a comment, and of a check run's summary."""


class GitHub:
    """A client for the API at `url` with the grants of `access`, for use in one thread."""

    def __init__(
        self,
        url: str,
        access: Access,
        *,
        now: Callable[[], datetime] = utcnow,
    ) -> None:
        self._url, self._access, self._now = url.rstrip("/"), access, now
        self._limited_until: dict[str, datetime] = {}  # grant's name -> end of its rate limit
        self._logins: dict[str, str | None] = {}  # grant's name -> user of its token
        headers = {
            "accept": "application/vnd.github+json",
            "x-github-api-version": API_VERSION,
            "user-agent": f"GoNoGo/{release()}",
            "content-type": "application/json",
        }
        self._client = httpx.Client(
            headers=headers,
            timeout=httpx.Timeout(ANSWER_S, connect=CONNECT_S),
            follow_redirects=False,
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def may_check(self, repository: str) -> bool:
        """Return whether check runs can be written there: only an App may. Raises GitHubError."""
        return self._grant(repository).checks

    def set_status(
        self,
        repository: str,
        sha: str,
        *,
        state: str,
        context: str,
        description: str,
        url: str | None,
    ) -> None:
        """Set a commit's status, which replaces the one with the same context.

        Raises GitHubError.
        """
        body = {
            "state": state,
            "context": context,
            "description": shortened(description, MAX_DESCRIPTION),
        }
        self._send(
            "POST",
            f"/repos/{_repository(repository)}/statuses/{quote(sha, safe='')}",
            repository,
            {**body, **_target(url)},
        )

    def find_check(self, repository: str, sha: str, *, name: str, external_id: str) -> int | None:
        """Return the number of our check run with this name and ID. Raises GitHubError."""
        query = urlencode({"check_name": name, "filter": "all", "per_page": PER_PAGE})
        path = f"/repos/{_repository(repository)}/commits/{quote(sha, safe='')}/check-runs?{query}"
        for page in self.pages(path, repository):
            for check_run in page.get("check_runs", ()):
                if check_run.get("external_id") == external_id:
                    return int(check_run["id"])
        return None

    def create_check(self, repository: str, fields: Mapping[str, Any]) -> int:
        """Create a check run from name, head_sha, external_id, status, output, ...

        Returns its number. Raises GitHubError.
        """
        return _number(
            self._send("POST", f"/repos/{_repository(repository)}/check-runs", repository, fields)
        )

    def change_check(self, repository: str, number: int, fields: Mapping[str, Any]) -> None:
        """Change a check run; new annotations are appended. Raises GitHubError."""
        self._send(
            "PATCH", f"/repos/{_repository(repository)}/check-runs/{number}", repository, fields
        )

    def annotations_of(self, repository: str, number: int) -> int:
        """Return the number of a check run's annotations. Raises GitHubError."""
        check_run = _json(
            self._ask(
                "GET",
                f"{self._url}/repos/{_repository(repository)}/check-runs/{number}",
                repository,
            )
        )
        return int((check_run.get("output") or {}).get("annotations_count") or 0)

    def find_comment(self, repository: str, pull_request: int, begins: str) -> int | None:
        """Return the number of our first comment on a pull request with this beginning.

        Comments of other authors don't count. Raises GitHubError.
        """
        path = (
            f"/repos/{_repository(repository)}/issues/{pull_request}/comments?per_page={PER_PAGE}"
        )
        for page in self.pages(path, repository):
            for comment in page:
                text = str(comment.get("body") or "")
                if text.startswith(begins) and self._is_ours(comment, repository):
                    return int(comment["id"])
        return None

    def _is_ours(self, comment: Mapping[str, Any], repository: str) -> bool:
        """Return whether the App or the token's user wrote a comment; only they can change it."""
        grant = self._grant(repository)
        if grant.app is not None:
            app = comment.get("performed_via_github_app")
            return grant.app in {str(_inner(app, "id")), str(_inner(app, "client_id"))}
        if grant.name not in self._logins:
            try:
                self._logins[grant.name] = str(
                    _json(self._request("GET", f"{self._url}/user", grant, None))["login"]
                )
            except Refused:  # a token of a GitHub workflow belongs to no user
                self._logins[grant.name] = None
        login = self._logins[grant.name]
        return login is None or login == _inner(comment, "user", "login")

    def create_comment(self, repository: str, pull_request: int, text: str) -> int:
        """Comment on a pull request; return the comment's number. Raises GitHubError."""
        path = f"/repos/{_repository(repository)}/issues/{pull_request}/comments"
        return _number(self._send("POST", path, repository, {"body": text}))

    def change_comment(self, repository: str, number: int, text: str) -> None:
        """Replace a comment's text. Raises GitHubError; Refused with 404 when it was deleted."""
        self._send(
            "PATCH",
            f"/repos/{_repository(repository)}/issues/comments/{number}",
            repository,
            {"body": text},
        )

    def pulls_of(self, repository: str, sha: str) -> list[Mapping[str, Any]]:
        """Return the repository's open pull requests whose head is this commit.

        Pull requests that merely contain the commit are left out. Raises GitHubError.
        """
        commit = f"/repos/{_repository(repository)}/commits/{quote(sha, safe='')}"
        return [
            pull
            for page in self.pages(f"{commit}/pulls?per_page={PER_PAGE}", repository)
            for pull in page
            if pull.get("state") == "open"
            and _same_name(_inner(pull, "base", "repo", "full_name"), repository)
            and _inner(pull, "head", "sha") == sha
        ]

    def _send(self, method: str, path: str, repository: str, body: Mapping[str, Any]) -> Any:
        return _json(self._ask(method, self._url + path, repository, body))

    def pages(self, path: str, repository: str) -> Iterator[Any]:
        """Yield the pages of the list at a path, at most MAX_PAGES. Raises GitHubError.

        GitHub names the next one in the header `link`.
        """
        url: str | None = self._url + path
        for _ in range(MAX_PAGES):
            if url is None:
                return
            answer = self._ask("GET", url, repository)
            yield _json(answer)
            url = answer.links.get("next", {}).get("url")

    def _ask(
        self, method: str, url: str, repository: str, body: Mapping[str, Any] | None = None
    ) -> httpx.Response:
        """Send a request with the repository's grant, and again with a new one after a 401."""
        try:
            return self._request(method, url, self._grant(repository), body)
        except Refused as problem:
            if problem.status != 401 or not self._access.refused(repository):
                raise
        return self._request(method, url, self._grant(repository), body)

    def _grant(self, repository: str) -> Grant:
        def ask(method: str, path: str, authorization: str) -> Mapping[str, Any]:
            answer: Mapping[str, Any] = _json(
                self._request(
                    method, self._url + path, Grant(authorization, "app", checks=False), None
                )
            )
            return answer

        return self._access.grant(_repository(repository), ask)

    def _request(
        self, method: str, url: str, grant: Grant, body: Mapping[str, Any] | None
    ) -> httpx.Response:
        limited_until = self._limited_until.get(grant.name)
        if limited_until is not None and self._now() < limited_until:
            raise Limited("GitHub's rate limit was reached before", limited_until)
        for _ in range(1 + MAX_REDIRECTS):
            if _origin(url) != _origin(self._url):  # no other server must get the token
                raise Refused(f"{method}: GitHub names another server, {_origin(url)[:200]}", 400)
            content = None if body is None else encode(body).encode()
            try:
                answer = self._client.request(
                    method, url, content=content, headers={"authorization": grant.authorization}
                )
            except (httpx.HTTPError, httpx.InvalidURL, OSError) as problem:
                raise Away(
                    f"{method} {urlsplit(url).path}: {type(problem).__name__}: {problem}"[:500]
                ) from problem
            if answer.status_code not in (301, 302, 307, 308) or "location" not in answer.headers:
                break
            # a renamed repository: send the same request to its new address
            url = str(httpx.URL(url).join(answer.headers["location"]))
        self._check(method, url, grant, answer)
        return answer

    def _check(self, method: str, url: str, grant: Grant, answer: httpx.Response) -> None:
        """Raise GitHubError for an error's status; remember an exhausted rate limit."""
        status, now = answer.status_code, self._now()
        until = limits.until(
            status, answer.headers, answer.text if status in limits.STATUSES else "", now
        )
        if until is not None:
            self._limited_until[grant.name] = until
        if 200 <= status < 300:
            return
        message = f"{method} {urlsplit(url).path}: {status} {_message(answer)}"[:500]
        if until is not None and status in limits.STATUSES:
            raise Limited(message, until)
        if status >= 500 or status in (408, 425):
            raise Away(message)
        raise Refused(message, status)


def shortened(text: str, most: int) -> str:
    """Return the text, cut to at most `most` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def _repository(text: str) -> str:
    """Return "owner/name" quoted for a path. Raises Refused for anything else."""
    owner, slash, name = text.partition("/")
    if not slash or not owner or not name or "/" in name or {owner, name} & {".", ".."}:
        raise Refused(f"{text[:100]!r} is not a repository (needs: owner/name)", 404)
    return f"{quote(owner, safe='')}/{quote(name, safe='')}"


def _inner(value: Any, *names: str) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _same_name(full_name: Any, repository: str) -> bool:
    return isinstance(full_name, str) and full_name.casefold() == repository.casefold()


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}".lower()


def _target(url: str | None) -> dict[str, str]:
    return {} if url is None else {"target_url": url}


def _number(created: Any) -> int:
    try:
        return int(created["id"])
    except (KeyError, TypeError, ValueError) as problem:
        raise Away("GitHub's answer has no id") from problem


def _json(answer: httpx.Response) -> Any:
    try:
        return decode(answer.content)
    except ValueError as problem:
        raise Away(
            f"{answer.request.method} {answer.request.url.path}: the answer is not JSON"
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

"""A client of GitHub's REST API, as far as answers need it: https://docs.github.com/rest.

Everything can be done twice without a second status, check run or comment showing: what exists is
looked for before something is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import httpx

from gonogo_service.github import limits
from gonogo_service.github.access import Access, Grant
from gonogo_service.github.problems import Away, Limited, Refused
from gonogo_settings.release import release
from gonogo_storage.db.encoding import decode, encode, utcnow

API_VERSION = "2022-11-28"
CONNECT_S, ANSWER_S = 5.0, 20.0
PER_PAGE = 100
MOST_PAGES = 50
MOST_REDIRECTS = 3
MOST_DESCRIPTION = 140
MOST_ANNOTATIONS = 50
"""A request may bring so many; the next ones are appended by further requests."""
MOST_TEXT = 65_535
"""Characters of a comment, and of a check run's summary."""


class GitHub:
    """Speaks for `access` to the API at `url`. Used by one thread. `wait`: waits for the end of a
    rate limit, or says that it won't.
    """

    def __init__(
        self,
        url: str,
        access: Access,
        *,
        now: Callable[[], datetime] = utcnow,
        wait: Callable[[datetime], bool] | None = None,
    ) -> None:
        self._url, self._access, self._now, self._wait = url.rstrip("/"), access, now, wait
        self._rests: dict[str, datetime] = {}  # whose rate limit -> until when nothing may be asked
        self._logins: dict[str, str | None] = {}  # as whom a token speaks
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
        """Give back the connections."""
        self._client.close()

    def may_check(self, repository: str) -> bool:
        """Whether check runs can be written there: only an App may. Raises GitHubError."""
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
        """Set a commit's status; of one `context` the last one counts. Raises GitHubError."""
        body = {
            "state": state,
            "context": context,
            "description": shortened(description, MOST_DESCRIPTION),
        }
        self._send(
            "POST",
            f"/repos/{_repository(repository)}/statuses/{quote(sha, safe='')}",
            repository,
            {**body, **_target(url)},
        )

    def find_check(self, repository: str, sha: str, *, name: str, external_id: str) -> int | None:
        """The check run of this name that we made under this id. Raises GitHubError."""
        query = urlencode({"check_name": name, "filter": "all", "per_page": PER_PAGE})
        path = f"/repos/{_repository(repository)}/commits/{quote(sha, safe='')}/check-runs?{query}"
        for page in self._pages(path, repository):
            for each in page.get("check_runs", ()):
                if each.get("external_id") == external_id:
                    return int(each["id"])
        return None

    def make_check(self, repository: str, fields: Mapping[str, Any]) -> int:
        """Make a check run (name, head_sha, external_id, status, output, ...); its number. Raises
        GitHubError.
        """
        return _number(
            self._send("POST", f"/repos/{_repository(repository)}/check-runs", repository, fields)
        )

    def change_check(self, repository: str, number: int, fields: Mapping[str, Any]) -> None:
        """Change it; annotations are appended to those that it has. Raises GitHubError."""
        self._send(
            "PATCH", f"/repos/{_repository(repository)}/check-runs/{number}", repository, fields
        )

    def annotations_of(self, repository: str, number: int) -> int:
        """How many annotations a check run has. Raises GitHubError."""
        found = _json(
            self._ask(
                "GET",
                f"{self._url}/repos/{_repository(repository)}/check-runs/{number}",
                repository,
            )
        )
        return int((found.get("output") or {}).get("annotations_count") or 0)

    def find_comment(self, repository: str, pull_request: int, begins: str) -> int | None:
        """Our first comment on a pull request whose text begins so. One of a stranger is not ours,
        whatever it says. Raises GitHubError.
        """
        path = (
            f"/repos/{_repository(repository)}/issues/{pull_request}/comments?per_page={PER_PAGE}"
        )
        for page in self._pages(path, repository):
            for each in page:
                if str(each.get("body") or "").startswith(begins) and self._ours(each, repository):
                    return int(each["id"])
        return None

    def _ours(self, comment: Mapping[str, Any], repository: str) -> bool:
        """Whether the App, or else the token's user, wrote it: whoever did can change it later."""
        grant = self._grant(repository)
        if grant.app is not None:
            app = comment.get("performed_via_github_app")
            return grant.app in {str(_inner(app, "id")), str(_inner(app, "client_id"))}
        if grant.name not in self._logins:
            try:
                self._logins[grant.name] = str(
                    _json(self._once("GET", f"{self._url}/user", grant, None))["login"]
                )
            except Refused:  # a token of GitHub's own workflows is no user's
                self._logins[grant.name] = None
        login = self._logins[grant.name]
        return login is None or login == _inner(comment, "user", "login")

    def make_comment(self, repository: str, pull_request: int, text: str) -> int:
        """Comment on a pull request; the comment's number. Raises GitHubError."""
        path = f"/repos/{_repository(repository)}/issues/{pull_request}/comments"
        return _number(self._send("POST", path, repository, {"body": text}))

    def change_comment(self, repository: str, number: int, text: str) -> None:
        """Write a comment anew. Raises GitHubError; Refused with 404 when it was deleted."""
        self._send(
            "PATCH",
            f"/repos/{_repository(repository)}/issues/comments/{number}",
            repository,
            {"body": text},
        )

    def pulls_of(self, repository: str, sha: str) -> list[Mapping[str, Any]]:
        """The open pull requests to the repository whose head is this commit; those that only hold
        it are left out. Raises GitHubError.
        """
        path = f"/repos/{_repository(repository)}/commits/{quote(sha, safe='')}/pulls?per_page={PER_PAGE}"
        found = [
            each
            for page in self._pages(path, repository)
            for each in page
            if each.get("state") == "open"
        ]
        ours = [
            each
            for each in found
            if _same_name(_inner(each, "base", "repo", "full_name"), repository)
        ]
        return [each for each in ours if _inner(each, "head", "sha") == sha]

    def pages(self, path: str, repository: str, *, most: int = MOST_PAGES) -> Iterator[Any]:
        """Every page of the list at a path, `most` at most. Raises GitHubError."""
        return self._pages(path, repository, most)

    def ask_for(self, path: str, repository: str) -> None:
        """POST to a path that does something and says nothing of it. Raises GitHubError."""
        self._ask("POST", self._url + path, repository)

    def look(self, path: str, repository: str) -> Any:
        """What is at a path. Raises GitHubError."""
        return _json(self._ask("GET", self._url + path, repository))

    def _send(self, method: str, path: str, repository: str, body: Mapping[str, Any]) -> Any:
        return _json(self._ask(method, self._url + path, repository, body))

    def _pages(self, path: str, repository: str, most: int = MOST_PAGES) -> Iterator[Any]:
        """Every page of a list: GitHub names the next one in the header `link`."""
        url: str | None = self._url + path
        for _ in range(most):
            if url is None:
                return
            answer = self._ask("GET", url, repository)
            yield _json(answer)
            url = answer.links.get("next", {}).get("url")

    def _ask(
        self, method: str, url: str, repository: str, body: Mapping[str, Any] | None = None
    ) -> httpx.Response:
        """With the repository's grant; once more with a new one where GitHub no longer takes the
        old.
        """
        try:
            return self._once(method, url, self._grant(repository), body)
        except Refused as problem:
            if problem.status != 401 or not self._access.refused(repository):
                raise
        return self._once(method, url, self._grant(repository), body)

    def _grant(self, repository: str) -> Grant:
        def ask(method: str, path: str, authorization: str) -> Mapping[str, Any]:
            found: Mapping[str, Any] = _json(
                self._once(
                    method, self._url + path, Grant(authorization, "app", checks=False), None
                )
            )
            return found

        return self._access.grant(_repository(repository), ask)

    def _once(
        self, method: str, url: str, grant: Grant, body: Mapping[str, Any] | None
    ) -> httpx.Response:
        while True:
            try:
                return self._asked(method, url, grant, body)
            except Limited as problem:
                if self._wait is None or not self._wait(problem.until):
                    raise

    def _asked(
        self, method: str, url: str, grant: Grant, body: Mapping[str, Any] | None
    ) -> httpx.Response:
        rest = self._rests.get(grant.name)
        if rest is not None and self._now() < rest:
            raise Limited("GitHub's rate limit was reached before", rest)
        for _ in range(1 + MOST_REDIRECTS):
            if _origin(url) != _origin(
                self._url
            ):  # the token is GitHub's; whoever else is named here must not get it
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
            url = str(
                httpx.URL(url).join(answer.headers["location"])
            )  # a renamed repository: the same request at its new address
        self._check(method, url, grant, answer)
        return answer

    def _check(self, method: str, url: str, grant: Grant, answer: httpx.Response) -> None:
        """Raises GitHubError unless it is a good one; notes a limit that is used up."""
        status, now = answer.status_code, self._now()
        until = limits.until(
            status, answer.headers, answer.text if status in limits.STATUSES else "", now
        )
        if until is not None:
            self._rests[grant.name] = until
        if 200 <= status < 300:
            return
        said = f"{method} {urlsplit(url).path}: {status} {_message(answer)}"[:500]
        if until is not None and status in limits.STATUSES:
            raise Limited(said, until)
        if status >= 500 or status in (408, 425):
            raise Away(said)
        raise Refused(said, status)


def shortened(text: str, most: int) -> str:
    """The text in at most so many characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def _repository(text: str) -> str:
    """ "owner/name" for a path. Raises Refused for anything else."""
    owner, slash, name = text.partition("/")
    if not slash or not owner or not name or "/" in name or {owner, name} & {".", ".."}:
        raise Refused(f"{text[:100]!r} is no repository's owner/name", 404)
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


def _number(made: Any) -> int:
    try:
        return int(made["id"])
    except (KeyError, TypeError, ValueError) as problem:
        raise Away("GitHub's answer has no id") from problem


def _json(answer: httpx.Response) -> Any:
    try:
        return decode(answer.content)
    except ValueError as problem:
        raise Away(
            f"{answer.request.method} {answer.request.url.path}: the answer is no JSON"
        ) from problem


def _message(answer: httpx.Response) -> str:
    """GitHub's own words, with the fields that it names."""
    try:
        said = decode(answer.content)
        fields = "; ".join(
            str(each.get("message") or f"{each.get('field')} {each.get('code')}")
            for each in said.get("errors", ())
        )
        return f"{said.get('message', '')}{': ' + fields if fields else ''}"
    except (ValueError, AttributeError, TypeError):
        return answer.text[:200]

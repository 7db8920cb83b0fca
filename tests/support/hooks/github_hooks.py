"""The stand-in for GitHub with webhooks: it lists a repository's and the App's deliveries, newest
first, in pages with cursors, and sends one again."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from github import REPOSITORY, GitHubServer
from github_fields import Problem

HOOK = 12


class HookedGitHub(GitHubServer):
    """`sent`: what it delivered, oldest first; `again`: ids of what it was asked to send again;
    `files`: paths of every pull request."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[dict[str, Any]] = []
        self.again: list[int] = []
        self.files: list[str] = []

    def clear(self) -> None:
        """As if nobody had ever asked."""
        super().clear()
        self.sent, self.again, self.files = [], [], []

    def send(self, guid: str, event: str, payload: Any, at: datetime) -> None:
        """Note a delivery that nobody took."""
        shown = {
            "id": len(self.sent) + 1,
            "guid": guid,
            "event": event,
            "status_code": 502,
            "redelivery": False,
        }
        self.sent.append(
            {
                **shown,
                "delivered_at": at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                "payload": payload,
            }
        )

    def _route(
        self, method: str, path: str, query: dict[str, str], headers: dict[str, str], body: Any
    ) -> tuple[int, dict[str, str], Any]:
        below = f"/repos/{REPOSITORY}"
        if not re.match(rf"{below}/(hooks|pulls)|/app/hook/", path):
            return super()._route(method, path, query, headers, body)
        self._admit(path, headers.get("authorization", ""))
        if path == f"{below}/hooks":
            routes = {
                "id": HOOK,
                "active": True,
                "config": {"url": "https://gonogo.example.org/api/v1/hooks/github"},
            }
            return (
                200,
                {},
                [
                    {"id": 3, "active": True, "config": {"url": "https://chat.example.org/hook"}},
                    routes,
                ],
            )
        if re.fullmatch(rf"{below}/pulls/\d+/files", path):
            rows, more = self._page([{"filename": name} for name in self.files], query, path)
            return 200, more, rows
        match = re.fullmatch(
            rf"(?:{below}/hooks/{HOOK}|/app/hook)/deliveries(?:/(\d+)(/attempts)?)?", path
        )
        if match is None or (method == "POST") != bool(match[2]) or method not in ("GET", "POST"):
            raise Problem(404, "Not Found")
        if match[1] is None:
            return self._deliveries(path, query)
        if int(match[1]) > len(self.sent):
            raise Problem(404, "Not Found")
        if match[2]:
            self.again.append(int(match[1]))
            return 202, {}, {}
        one = self.sent[int(match[1]) - 1]
        return (
            200,
            {},
            {
                **one,
                "request": {"headers": {"X-GitHub-Event": one["event"]}, "payload": one["payload"]},
            },
        )

    def _deliveries(self, path: str, query: dict[str, str]) -> tuple[int, dict[str, str], Any]:
        """GitHub's cursor is a word for a delivery, not the number of a page."""
        if "page" in query:
            raise Problem(422, "Deliveries have cursors, no pages")
        newest = list(reversed(self.sent))
        start = int(query.get("cursor", "v1_0").removeprefix("v1_"))
        size = min(int(query.get("per_page", "30")), self.most)
        page = [
            {name: value for name, value in delivery.items() if name != "payload"}
            for delivery in newest[start : start + size]
        ]
        more = {}
        if start + size < len(newest):
            more = {
                "link": f'<{self.url}{path}?per_page={size}&cursor=v1_{start + size}>; rel="next"'
            }
        return 200, more, page

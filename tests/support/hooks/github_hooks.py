"""The stand-in for GitHub with the files of pull requests."""

from __future__ import annotations

import re
from typing import Any

from github import REPOSITORY, GitHubServer


class HookedGitHub(GitHubServer):
    """`files`: paths of every pull request."""

    def __init__(self) -> None:
        super().__init__()
        self.files: list[str] = []

    def clear(self) -> None:
        """As if nobody had ever asked."""
        super().clear()
        self.files = []

    def _route(
        self, method: str, path: str, query: dict[str, str], headers: dict[str, str], body: Any
    ) -> tuple[int, dict[str, str], Any]:
        if not re.fullmatch(rf"/repos/{REPOSITORY}/pulls/\d+/files", path):
            return super()._route(method, path, query, headers, body)
        self._admit(path, headers.get("authorization", ""))
        rows, more = self._page([{"filename": name} for name in self.files], query, path)
        return 200, more, rows

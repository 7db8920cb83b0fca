"""A page's requests whose answers wait until a test lets them go."""

from __future__ import annotations

import time
from collections import deque

from playwright.sync_api import Page, Route

from patience import WAIT_S


class PendingRequests:
    """The page's requests for addresses like `pattern`: a test answers each, or nobody does."""

    def __init__(self, page: Page, pattern: str) -> None:
        self._page = page
        self._routes: deque[Route] = deque()
        page.route(pattern, lambda route: self._routes.append(route))

    def take(self) -> Route:
        """Take the oldest request that nobody took yet, and wait for it if there is none.

        A browser reports a request before its route is called: an expected request alone does not
        mean that there is a route to answer.

        Raises:
            TimeoutError: no request came in time.
        """
        deadline = time.monotonic() + WAIT_S
        while not self._routes:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no request came within {WAIT_S:.0f} s")
            self._page.wait_for_timeout(5)  # a route is called only while Playwright waits
        return self._routes.popleft()

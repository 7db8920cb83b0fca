"""The problems of a test's pages, and one tab that the tests of a process use one after another."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Error,
    Page,
    Request,
    ViewportSize,
)

BETWEEN_TESTS = "http://127.0.0.1/between-tests"
"""An empty page of the same site as the tests' servers: for another site, about:blank among them,
Chromium starts another process."""


@dataclass
class Watch:
    """The problems of all pages of the test; `fine()` fails if there is one."""

    problems: list[str] = field(default_factory=list)
    meant: set[str] = field(default_factory=set)

    def mean(self, words: str) -> None:
        """Accept problems with these words, because the test provokes them. Chromium logs a refused
        request, for example."""
        self.meant.add(words)

    def observe(self, page: Page) -> None:
        """Record what goes wrong on the page from now on."""
        page.on("console", self.on_console)
        page.on("pageerror", self.on_error)
        page.on("request", self.on_request)

    def on_console(self, message: ConsoleMessage) -> None:
        """Record errors and warnings, violations of the content security policy among them."""
        if message.type in {"error", "warning"}:
            self.problems.append(f"console {message.type}: {message.text}")

    def on_error(self, error: Error) -> None:
        """Record an exception that nobody caught."""
        self.problems.append(f"exception: {error}")

    def on_request(self, request: Request) -> None:
        """Record a request that leaves the host."""
        if urlsplit(request.url).hostname not in {"127.0.0.1", None} or urlsplit(
            request.url
        ).scheme not in {"http", "data", "blob"}:
            self.problems.append(f"left the host: {request.url}")

    def fine(self) -> None:
        """Fail the test if there was any problem."""
        problems = [
            problem
            for problem in self.problems
            if not any(words in problem for words in self.meant)
        ]
        assert not problems, problems


class SharedTab:
    """One tab for many tests, because a new context starts two processes and compiles every script
    anew: three times the work of loading a page.

    Between two tests, the tab forgets all that a page, a reader or a test can leave behind, except
    scripts for every page (`add_init_script`, `clock`) and listeners: a test that adds some opens a
    context of its own.
    """

    def __init__(self, browser: Browser, size: ViewportSize, timeout_ms: float) -> None:
        self._browser, self._size, self._timeout_ms = browser, size, timeout_ms
        self._context: BrowserContext | None = None
        self._watch = Watch()

    def lend(self, watch: Watch) -> Page:
        """Return the tab, observed by the watch until `take_back`."""
        self._watch = watch
        if self._context is None:
            self._context = self._browser.new_context(viewport=self._size, color_scheme="light")
            self._context.on("page", self._observe)
            self._context.new_page()
        page = self._context.pages[0]
        self._context.set_default_timeout(self._timeout_ms)
        page.set_default_timeout(self._timeout_ms)
        return page

    def take_back(self, page: Page) -> None:
        """Make the tab as good as new; one that can't be is closed, and the next test opens
        another."""
        self._watch = Watch()  # whatever a page says while it is left is no test's problem
        assert self._context is not None
        try:
            scripted = page.evaluate("'__pwClock' in globalThis")
            self._forget(page)
        except Error:
            self.close()
            return
        if scripted:
            self.close()
        assert not scripted, "a test with a clock of its own opens a context of its own"

    def close(self) -> None:
        if self._context is not None:
            self._context.close()
        self._context = None

    def _forget(self, page: Page) -> None:
        assert self._context is not None
        page.unroute_all(behavior="ignoreErrors")
        page.evaluate("() => { localStorage.clear(); sessionStorage.clear(); }")
        page.route(BETWEEN_TESTS, lambda route: route.fulfill(content_type="text/html", body=""))
        page.goto(BETWEEN_TESTS)
        page.unroute_all(behavior="ignoreErrors")
        page.mouse.move(-1, -1)  # nothing is hovered over when the next page opens
        for other in self._context.pages[1:]:
            other.close()
        self._context.clear_cookies()
        page.set_viewport_size(self._size)
        page.emulate_media(color_scheme="light", media="screen", reduced_motion="no-preference")

    def _observe(self, page: Page) -> None:
        page.on("console", lambda message: self._watch.on_console(message))
        page.on("pageerror", lambda error: self._watch.on_error(error))
        page.on("request", lambda request: self._watch.on_request(request))

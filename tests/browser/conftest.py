"""A real Chromium against the real app on an ephemeral port, with a database that tests fill
through the storage functions."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfile
from typing import Any
from urllib.parse import urlsplit

import pytest
import uvicorn
from fastapi import FastAPI
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from pydantic import SecretStr
from sqlalchemy.orm import Session

import populated_copy
from gonogo.settings import Settings
from gonogo_dashboards.build import BuildFailed, build
from gonogo_service.app import create_app
from gonogo_service.kit.database import engine as engines
from gonogo_service.kit.database.ids import new_id
from gonogo_service.people.issuing import issue_token
from patience import WAIT_S, scaled
from populated_database import House
from watched_pages import SharedTab, Watch

ROOT = Path(__file__).resolve().parents[2]
CHROMIUMS = ("chromium-headless-shell", "chromium", "chromium-browser")
"""The first one is the same engine without a window, which would take half of the tests' time."""
DESKTOP, PHONE = (1280, 900), (390, 844)
TIMEOUT_MS = 1000 * scaled(20)
"""The limit of all that a test waits for on a page, unless it says another."""
expect.set_options(timeout=TIMEOUT_MS)
WITHOUT_OPTIMIZING = "--js-flags=--no-opt,--no-maglev"
"""V8 runs scripts without its optimizing compilers: a page lives for a second here, and axe-core
alone would be compiled anew on each, which takes longer than it saves."""


@pytest.fixture(scope="session")
def bundle() -> None:
    """The browser's part of the pages, built from today's sources."""
    try:
        build(ROOT)
    except BuildFailed as problem:
        pytest.skip(f"node: {problem}")


@pytest.fixture(scope="session")
def browser(bundle: None) -> Iterator[Browser]:
    """One headless Chromium for all tests: Debian's, or the one that GONOGO_CHROMIUM names."""
    program = os.environ.get("GONOGO_CHROMIUM") or next(
        filter(None, map(shutil.which, CHROMIUMS)), None
    )
    if program is None:
        pytest.skip("chromium: not installed (apt-get install chromium-headless-shell)")
    arguments = [WITHOUT_OPTIMIZING]
    if os.getuid() == 0:  # Chromium's sandbox refuses to run as root
        arguments.append("--no-sandbox")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=arguments)
        yield started
        started.close()


@dataclass
class Server:
    """The app, served; `writing()` is a transaction on its database, as ingest would use."""

    url: str
    app: FastAPI
    stop: Callable[[], None]

    @property
    def port(self) -> int:
        """The port where it listens; another server may start there once this one has stopped."""
        return urlsplit(self.url).port or 0

    def writing(self) -> AbstractContextManager[Session]:
        return engines.session(self.app.state.context.engine)

    def reading(self) -> AbstractContextManager[Session]:
        return engines.reading(self.app.state.context.engine)

    @property
    def streams(self) -> int:
        """The number of open event streams."""
        return int(self.app.state.context.hub.streams)


@contextmanager
def serving(folder: Path, template: Path) -> Iterator[Callable[..., Server]]:
    """Yield a function that starts the app with some settings on an SQLite database in a folder.
    The database is a copy of the template unless it is there already."""
    running: list[tuple[uvicorn.Server, threading.Thread]] = []

    def start(port: int = 0, **changes: Any) -> Server:
        file = folder / "gonogo.sqlite"
        if not file.exists():
            copyfile(template, file)
        app = create_app(
            Settings(
                database_url=f"sqlite:///{file}",
                var_dir=str(folder),
                **{"embedded": True, **changes},
            )
        )
        server = uvicorn.Server(
            uvicorn.Config(app, port=port, log_level="warning", timeout_graceful_shutdown=2)
        )
        thread = threading.Thread(target=server.run, name="uvicorn")
        thread.start()
        running.append((server, thread))
        wait_until(lambda: server.started, "the app did not start")
        port = server.servers[0].sockets[0].getsockname()[1]

        def stop() -> None:
            app.state.context.hub.close()
            server.should_exit = True
            thread.join(timeout=WAIT_S)
            assert not thread.is_alive(), "the app did not stop"

        return Server(f"http://127.0.0.1:{port}", app, stop)

    yield start
    for server, thread in running:
        server.should_exit = True
        thread.join(timeout=WAIT_S)


@pytest.fixture
def serve(tmp_path: Path, sqlite_template: Path) -> Iterator[Callable[..., Server]]:
    """A function that starts the app with some settings on a database of this test."""
    with serving(tmp_path, sqlite_template) as start:
        yield start


@pytest.fixture(scope="session")
def populated(
    tmp_path_factory: pytest.TempPathFactory, shared_folder: Path, sqlite_template: Path
) -> Iterator[tuple[Server, House]]:
    """One app for all tests of this process, with something on every page. A test that changes
    something takes it back."""
    folder = tmp_path_factory.mktemp("house")
    house = populated_copy.copy(shared_folder / "house", folder / "gonogo.sqlite")
    with serving(folder, sqlite_template) as start:
        yield start(), house


@pytest.fixture
def server(serve: Callable[..., Server]) -> Server:
    """The app as `gonogo up` runs it: no login on loopback."""
    return serve()


@pytest.fixture
def guarded(serve: Callable[..., Server]) -> Server:
    """The app as it runs in production: nobody gets in without a token."""
    return serve(embedded=False, secret_key=SecretStr("k" * 40))


@pytest.fixture
def login() -> Callable[[Page, Server, str, str], None]:
    """A function that logs in at a server with a new token of a scope, and goes to an address."""

    def enter(page: Page, server: Server, scope: str, path: str) -> None:
        with server.writing() as session:
            token = issue_token(session, new_id(), [scope], keys=server.app.state.context.keys)
        page.goto(f"{server.url}/login?next={path.removeprefix(server.url)}")
        page.get_by_label("token").fill(token)
        page.get_by_role("button", name="log in").click()

    return enter


@pytest.fixture
def watch() -> Iterator[Watch]:
    """A watch on every page that the test opens; the test fails at its end if anything was
    wrong."""
    watching = Watch()
    yield watching
    watching.fine()


@pytest.fixture
def open_context(browser: Browser, watch: Watch) -> Iterator[Callable[..., BrowserContext]]:
    """A function that opens a fresh browser context (cookies, channels) with watched pages."""
    contexts: list[BrowserContext] = []

    def make(
        *, scheme: str = "light", size: tuple[int, int] = DESKTOP, **options: Any
    ) -> BrowserContext:
        context = browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, **options
        )  # type: ignore[arg-type]
        context.set_default_timeout(TIMEOUT_MS)
        context.on("page", watch.observe)
        contexts.append(context)
        return context

    yield make
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def shared_tab(browser: Browser) -> Iterator[SharedTab]:
    width, height = DESKTOP
    tab = SharedTab(browser, {"width": width, "height": height}, TIMEOUT_MS)
    yield tab
    tab.close()


@pytest.fixture
def page(shared_tab: SharedTab, watch: Watch) -> Iterator[Page]:
    """A watched page at desktop size, in a tab that other tests use too, one after another."""
    page = shared_tab.lend(watch)
    yield page
    shared_tab.take_back(page)


def wait_until(condition: Callable[[], bool], otherwise: str) -> None:
    """Wait until the condition holds; fail where it does not come."""
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, otherwise
        time.sleep(0.02)


@pytest.fixture
def wait() -> Callable[..., None]:
    return wait_until

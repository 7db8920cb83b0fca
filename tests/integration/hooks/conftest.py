"""A receiver of webhooks, their sender, and a service with incoming webhooks for a file's tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from api import Api, in_process
from hook_service import background, copied, emptied
from sent_webhooks import LOCAL, Webhooks
from webhook_receiver import Receiver


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with closing(Receiver()) as http_receiver:
        yield http_receiver


@pytest.fixture
def webhooks(lite_database_url: str) -> Iterator[Webhooks]:
    """A service and a sender to which loopback is no private address."""
    with (
        in_process(lite_database_url, url="https://gonogo.example") as api,
        background(api, webhook_private=LOCAL) as core,
    ):
        yield Webhooks(api, core)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Api]:
    with copied(sqlite_template, tmp_path_factory.mktemp("hooks")) as service:
        yield service


@pytest.fixture
def lite(shared: Api) -> Api:
    """The shared service, emptied."""
    return emptied(shared)

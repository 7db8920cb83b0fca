"""A receiver of webhooks, and a service with incoming webhooks that a file's tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from api import Api
from hook_service import copied, emptied
from webhook_receiver import Receiver


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    http_receiver = Receiver()
    yield http_receiver
    http_receiver.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Api]:
    with copied(sqlite_template, tmp_path_factory.mktemp("hooks")) as service:
        yield service


@pytest.fixture
def lite(shared: Api) -> Api:
    """The shared service, emptied."""
    return emptied(shared)

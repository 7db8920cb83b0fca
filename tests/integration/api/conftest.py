"""Services for the tests of this folder. A module's SETTINGS are those of its services."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from shutil import copyfile

import pytest

from api import Api, in_process


@pytest.fixture
def api(lite_database_url: str, request: pytest.FixtureRequest) -> Iterator[Api]:
    """An embedded service with an empty database."""
    with in_process(lite_database_url, **getattr(request.module, "SETTINGS", {})) as service:
        yield service


@pytest.fixture(scope="module")
def shared(
    tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path, request: pytest.FixtureRequest
) -> Iterator[Api]:
    """One embedded service for all tests of a module that need no empty database."""
    file = tmp_path_factory.mktemp("shared") / "gonogo.sqlite"
    copyfile(sqlite_template, file)
    with in_process(f"sqlite:///{file}", **getattr(request.module, "SETTINGS", {})) as service:
        yield service


@pytest.fixture
def closed(lite_database_url: str) -> Iterator[Api]:
    """A service that is not embedded, with a client on another machine."""
    with in_process(lite_database_url, embedded=False) as service:
        service.client = service.visitor()
        yield service

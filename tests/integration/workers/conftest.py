"""Workplaces: a broker and a service, without workers yet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from servers import RedisServer
from worker_process import Workplace


@pytest.fixture
def place(tmp_path: Path, redis_url: str) -> Iterator[Workplace]:
    """For one test; afterwards no process of its workers may be left."""
    with closing(Workplace(redis_url, tmp_path)) as place:
        yield place


@pytest.fixture(scope="module")
def shared_place(
    tmp_path_factory: pytest.TempPathFactory, redis_server: RedisServer
) -> Iterator[Workplace]:
    """For all tests of a file: what a bad kernel leaves must not spoil the next chunk."""
    url = redis_server.url.removesuffix("/0") + "/5"
    with closing(Workplace(url, tmp_path_factory.mktemp("workplace"))) as place:
        place.redis.flushdb()
        yield place

"""One server for all pages that need one, as a reader's `gonogo up`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from running_service import Process, answers, clean_environment, until
from servers import free_port


@dataclass(frozen=True, slots=True)
class Server:
    """Its address, and the folder of its database, which readers have beside them as `./var`."""

    url: str
    var: Path


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A `gonogo up` with a database of its own."""
    folder: Path = tmp_path_factory.mktemp("server")
    port = free_port()
    up = Server(f"http://127.0.0.1:{port}", folder / "var")
    words = ["up", "--port", str(port), "--var", str(up.var)]
    process = Process(words, clean_environment(HOME=str(folder)), folder / "up.log")
    process.start()
    try:
        until(lambda: answers(up.url), what=(folder / "up.log").read_text)
        yield up
    finally:
        process.stop()

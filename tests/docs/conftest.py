"""One server for all pages that need one, as a reader's `gonogo up`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from running_service import Process, answers, clean_environment, until
from servers import free_port


@pytest.fixture(scope="session")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a `gonogo up` with a database of its own."""
    folder: Path = tmp_path_factory.mktemp("server")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    words = ["up", "--port", str(port), "--var", str(folder / "var")]
    process = Process(words, clean_environment(HOME=str(folder)), folder / "up.log")
    process.start()
    try:
        until(lambda: answers(url), what=(folder / "up.log").read_text)
        yield url
    finally:
        process.stop(15)

"""`gonogo up` leaves nothing in the temporary folder, however it ends."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from gonogo.errors import InfrastructureError
from gonogo_cli.operate import redis_server, up


def start(folder: Path, port: int) -> None:
    up.run(folder, "127.0.0.1", port, any_port=False, executor="emulator", say=print, ready=print)


def test_a_port_that_is_taken_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        pytest.raises(InfrastructureError, match="is taken"),
    ):
        start(tmp_path / "var", listener.getsockname()[1])
    assert list(scratch.iterdir()) == []


def test_a_machine_without_redis_leaves_no_folder_and_no_open_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> str:
        raise InfrastructureError("no redis-server")

    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    monkeypatch.setattr(redis_server, "program", missing)
    with pytest.raises(InfrastructureError, match="no redis-server"):
        start(tmp_path / "var", 0)
    assert list(scratch.iterdir()) == []

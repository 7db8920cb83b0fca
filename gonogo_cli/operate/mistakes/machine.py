"""The subject of the checks, read once: a machine, its settings, its database, its broker."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from gonogo_settings import Settings

if TYPE_CHECKING:
    from gonogo_storage.ops.installation import Facts
    from gonogo_storage.ops.schema import SchemaState


T = TypeVar("T")


class NotHere(Exception):
    """The part that a check looks at isn't configured on this machine; the text names it."""


class Space(NamedTuple):
    """Free space of a file system: bytes, and the share of its inodes."""

    free: int
    inodes: float


@dataclass(frozen=True)
class Broker:
    """Facts that Redis tells; a value that the account may not read is missing."""

    info: Mapping[str, Any]
    config: Mapping[str, str]
    ahead_s: float | None
    """Seconds that its clock is ahead of this machine's."""


@dataclass(frozen=True)
class Machine:
    """A machine with an installation."""

    settings: Settings
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    root: Path = Path("/")
    """Where /proc, /sys and /dev are."""
    folder: Path | None = None
    """Where `.env`, `worker.env` and `users.acl` would be; default: the current folder."""
    read_broker: Callable[[Settings], Broker] | None = None
    read_facts: Callable[[Settings], Facts] | None = None

    @property
    def var(self) -> Path:
        """Return the state folder."""
        return Path(self.settings.var_dir).absolute()

    @property
    def is_production(self) -> bool:
        """Return whether the database is configured, rather than made by `gonogo up`."""
        return self.settings.database_url is not None and not self.settings.embedded

    @property
    def broker(self) -> Broker:
        """Return what the configured broker says. Raises NotHere, and what the reading raised."""
        if self.settings.broker_url is None:
            raise NotHere("GONOGO_BROKER_URL is not set")
        return _value(self._broker)

    @property
    def facts(self) -> Facts:
        """Return what the database knows. Raises NotHere, and what the reading raised."""
        self.demand_database()
        return _value(self._facts)

    @cached_property
    def _broker(self) -> Broker | Exception:
        return _outcome(lambda: (self.read_broker or read_broker)(self.settings))

    @cached_property
    def _facts(self) -> Facts | Exception:
        return _outcome(lambda: (self.read_facts or read_facts)(self.settings))

    def demand_database(self) -> None:
        """Raise NotHere unless there is a database."""
        if self.settings.database_url is None and not (self.var / "gonogo.sqlite").exists():
            raise NotHere("no database is configured here")

    def space(self, folder: Path) -> Space:
        """Return the free space where a folder is, or will be."""
        while not folder.exists():
            folder = folder.parent
        status = os.statvfs(folder)
        inodes = status.f_favail / status.f_files if status.f_files else 1.0
        return Space(shutil.disk_usage(folder).free, inodes)

    def text(self, path: str) -> str | None:
        """Return the text of a file below `root`; None where there is none."""
        with suppress(OSError):
            return (self.root / path).read_text("utf-8", "replace").strip()
        return None


def _outcome(read: Callable[[], T]) -> T | Exception:
    """Return a value or an error: a server that is away is waited for once, not by each check."""
    try:
        return read()
    except Exception as problem:
        return problem


def _value(outcome: T | Exception) -> T:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def read_broker(settings: Settings) -> Broker:
    """Ask the configured Redis."""
    from redis.exceptions import ResponseError

    from gonogo_workers.queue import redis_client

    info: dict[str, Any] = {}
    config: dict[str, str] = {}
    ahead_s = None
    with redis_client(str(settings.broker_url)) as client:
        client.ping()
        for section in ("server", "memory", "persistence", "clients"):
            with suppress(ResponseError):  # an account that may not: NOPERM is one
                info |= client.info(section)
        for name in ("save", "maxclients"):
            with suppress(ResponseError):
                config |= client.config_get(name)
        with suppress(ResponseError):
            before = time.time()
            seconds, microseconds = client.time()
            ahead_s = seconds + microseconds / 1e6 - (before + time.time()) / 2
    return Broker(info, config, ahead_s)


def read_facts(settings: Settings) -> Facts:
    """Ask the database."""
    from gonogo_cli.operate.database import engine
    from gonogo_storage.db.engine import reading
    from gonogo_storage.ops import installation

    with engine() as database, reading(database) as session:
        return installation.read(session, heartbeat_timeout_s=settings.heartbeat_timeout_s)


def read_schema() -> SchemaState:
    """Compare the database's schema with this version's."""
    from gonogo_cli.operate.database import engine
    from gonogo_storage.ops import schema

    with engine() as database:
        return schema.state(database)

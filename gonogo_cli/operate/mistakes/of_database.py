"""Mistakes with the database."""

from __future__ import annotations

import time
from pathlib import Path

from gonogo_cli.operate.mistakes import machine as machines
from gonogo_cli.operate.mistakes.machine import Machine

LEAST_POSTGRES = 15
MAX_SKEW_S = 10.0
MAX_CONNECTIONS_SHARE = 0.8
_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "glusterfs", "ceph")


def schema(machine: Machine) -> str | None:
    """The tables are those of another version."""
    machine.demand_database()
    state = machines.read_schema()
    return None if state.value in ("head", "ahead") else f"the schema is {state.value}"


def clock(machine: Machine) -> str | None:
    """The database's clock is wrong."""
    ahead_s = machine.facts.clock_s - time.time()
    if abs(ahead_s) <= MAX_SKEW_S:
        return None
    return f"the database's clock is {ahead_s:+.0f} s ahead of this machine's"


def version(machine: Machine) -> str | None:
    """PostgreSQL is too old."""
    number = machine.facts.version
    return None if number is None or number >= LEAST_POSTGRES else f"PostgreSQL is {number}"


def timeouts(machine: Machine) -> str | None:
    """A statement, or a transaction that nobody ends, holds its locks for ever."""
    unset = [name for name, value in machine.facts.limits.items() if value in ("0", "")]
    return f"PostgreSQL's role has no {' and no '.join(unset)}" if unset else None


def connections(machine: Machine) -> str | None:
    """PostgreSQL soon refuses connections."""
    used, most = machine.facts.connections or (0, 1)
    if used <= MAX_CONNECTIONS_SHARE * most:
        return None
    return f"PostgreSQL has {used} of at most {most} connections"


def shared_file(machine: Machine) -> str | None:
    """Two processes both believe that they alone have SQLite's lock."""
    machine.demand_database()
    url = machine.settings.database_url or f"sqlite:///{machine.var / 'gonogo.sqlite'}"
    if not url.startswith("sqlite:///"):
        return None
    path = Path(url.removeprefix("sqlite:///")).absolute()
    kinds = {}
    for line in (machine.text("proc/mounts") or "").splitlines():
        _, place, kind, *_ = line.split()
        if path.is_relative_to(place):
            kinds[len(place)] = kind
    kind = kinds[max(kinds)] if kinds else ""
    return f"{path} is on a network file system ({kind})" if kind in _NETWORK else None

"""The populated database, filled once for all test processes: filling it takes 4 s of a processor,
copying it none."""

from __future__ import annotations

import fcntl
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import populated_database
from api import in_process
from populated_database import House

DATABASE, HOUSE = "gonogo.sqlite", "house.json"


def copy(shared: Path, target: Path) -> House:
    """Write a copy of the populated database to `target`; where its pages are.

    The first process that asks fills the one in `shared`, and the others wait for it.
    """
    shared.mkdir(parents=True, exist_ok=True)
    with (shared / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / HOUSE).exists():
            (shared / DATABASE).unlink(missing_ok=True)  # of a process that was killed
            with in_process(f"sqlite:///{shared / DATABASE}") as api:
                house = populated_database.fill(api)
            record = {"addresses": house.addresses, "hostile": sorted(house.hostile)}
            (shared / HOUSE).write_text(json.dumps(record))
    with (
        closing(sqlite3.connect(shared / DATABASE)) as source,
        closing(sqlite3.connect(target)) as copied,
    ):
        source.backup(copied)
    record = json.loads((shared / HOUSE).read_text())
    return House(record["addresses"], set(record["hostile"]))

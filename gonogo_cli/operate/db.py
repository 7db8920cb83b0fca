"""`gonogo db upgrade`: bring the database to this version's schema.

In production this is one step before the new processes start.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gonogo_cli.kit.groups import group

if TYPE_CHECKING:
    from sqlalchemy import Engine

app = group("Migrate the database.")


def copy_sqlite(engine: Engine) -> Path | None:
    """Copy an SQLite file that is about to be migrated, and return the copy's path.

    The copy is consistent and replaces an older one. None where there is no such file.
    """
    name = engine.url.database if engine.dialect.name == "sqlite" else None
    if name is None or not Path(name).exists():
        return None
    copy = Path(name).with_suffix(".before-upgrade.sqlite")
    fresh = copy.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    with (
        closing(sqlite3.connect(name, timeout=30)) as source,
        closing(sqlite3.connect(fresh)) as target,
    ):
        source.backup(target)
    fresh.replace(copy)
    return copy


@app.command()
def upgrade(as_json: bool = typer.Option(False, "--json", help="Print JSON.")) -> None:
    """Migrate to this version's schema; an SQLite file is copied first.

    Safe to run several times, and from several places at once.
    """
    from gonogo_cli.kit import show
    from gonogo_cli.operate.database import engine
    from gonogo_storage.ops import schema

    with engine() as database:
        before = schema.state(database)
        copy = copy_sqlite(database) if before is schema.SchemaState.behind else None
        schema.upgrade(database)
        after = schema.state(database)
    if as_json:
        show.print_json(
            {"before": before.value, "after": after.value, "copy": str(copy) if copy else None}
        )
    else:
        print(
            f"schema: was {before.value}, is {after.value}"
            + (f"; the file before the upgrade: {copy}" if copy else "")
        )

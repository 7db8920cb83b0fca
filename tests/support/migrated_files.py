"""Migrated SQLite files: migrating one takes longer than most tests, copying it doesn't."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from sqlalchemy import Engine

from gonogo_service.kit.database.engine import make_engine
from gonogo_service.operate import schema


@cache
def template() -> Path:
    """Path of a migrated file of this process, which others are copies of."""
    folder = tempfile.mkdtemp(prefix="gonogo-template-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    file = Path(folder, "gonogo.sqlite")
    engine = make_engine(f"sqlite:///{file}")
    schema.upgrade(engine)
    engine.dispose()
    return file


def upgrade(engine: Engine) -> None:
    """Make the tables: of an SQLite file that isn't there yet, by a copy of the template."""
    database = engine.url.database
    if engine.dialect.name == "sqlite" and database and not Path(database).exists():
        shutil.copyfile(template(), database)
    else:
        schema.upgrade(engine)

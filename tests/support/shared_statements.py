"""SQL that is compiled once for all databases of a process.

SQLAlchemy keeps what it has compiled with each engine, and each test has a database and an engine
of its own: compiling took more of the tests' time than running.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite

from gonogo_service.kit.database import engine


def share() -> None:
    """Let all engines of this process share their compiled statements.

    SQL is compiled for a dialect, and each engine makes one; ours differ in nothing.
    """

    def equal(one: object, other: object) -> bool:
        return type(one) is type(other)

    def number(one: object) -> int:
        return hash(type(one))

    compiled: dict[Any, Any] = {}
    patch = pytest.MonkeyPatch()  # for as long as the process lives
    for dialect in (SQLiteDialect_pysqlite, PGDialect_psycopg):
        patch.setattr(dialect, "__eq__", equal)
        patch.setattr(dialect, "__hash__", number)
    options = {"compiled_cache": compiled}
    patch.setattr(engine, "create_engine", partial(create_engine, execution_options=options))

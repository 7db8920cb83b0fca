"""The database that a command works on: the configured one, or that of `gonogo up` here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import gonogo.settings
from gonogo.cli.kit.extras import require_background
from gonogo.errors import InfrastructureError, JobError

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.orm import Session

    from gonogo_service.kit.principals import Keys


def configure() -> gonogo.settings.Settings:
    """Return the settings; without a database, those of the embedded service in var/.

    Its SQLite file and keys are then put into this process's environment. Raises JobError when
    there is neither, and where the service's packages are missing.
    """
    require_background()
    config = gonogo.settings.load()
    if config.database_url:
        return config
    folder = Path(config.var_dir).absolute()
    if not (folder / "gonogo.sqlite").exists():
        raise JobError(
            f"no database: GONOGO_DATABASE_URL is not set, and {folder} holds none "
            "(`gonogo up` makes one)"
        )
    os.environ["GONOGO_DATABASE_URL"] = f"sqlite:///{folder / 'gonogo.sqlite'}"
    if config.secret_key is None and (folder / "secret_key").exists():
        os.environ["GONOGO_SECRET_KEY"] = (folder / "secret_key").read_text().strip()
    gonogo.settings.load.cache_clear()
    return gonogo.settings.load()


@contextmanager
def engine() -> Iterator[Engine]:
    """Yield an engine for the database.

    Raises JobError without one, InfrastructureError when it can't be reached.
    """
    from sqlalchemy.exc import OperationalError, ProgrammingError

    from gonogo_service.kit.database.engine import make_engine
    from gonogo_service.operate import schema

    config = configure()
    assert config.database_url is not None
    database = make_engine(config.database_url)
    try:
        yield database
    except (
        OperationalError,
        ProgrammingError,
    ) as problem:  # a missing table is the one of SQLite, the other of PostgreSQL
        with suppress(OperationalError):
            if (state := schema.state(database)) not in schema.READY:
                raise InfrastructureError(
                    f"the database's schema is {state.value}: run `gonogo db upgrade`"
                ) from problem
        raise InfrastructureError(
            f"the database can't be used: {str(problem.orig).strip()}"
        ) from problem
    finally:
        database.dispose()


@contextmanager
def transaction() -> Iterator[tuple[Session, Keys]]:
    """Yield a write transaction beside the server, and the keys of its secrets.

    Raises JobError for what it refuses, and without GONOGO_SECRET_KEY.
    """
    from gonogo_service.kit.database.engine import session
    from gonogo_service.kit.problems import Problem
    from gonogo_service.people.auth import own_keys

    with engine() as database, session(database) as current:
        try:
            yield current, own_keys()
        except (Problem, ValueError) as problem:
            raise JobError(str(problem)) from problem

"""`gonogo db upgrade`: bring the database to this version's schema.

In production this is one step before the new processes start.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gonogo.errors import InfrastructureError, JobError
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


def enroll_host(engine: Engine, name: str, folder: Path, secret: str) -> None:
    """Enroll this machine, unless the database knows the key in its state folder.

    `secret` is GONOGO_SECRET_KEY. Raises JobError for a bad name, InfrastructureError where the
    folder can't be written.
    """
    from gonogo_service.access.invitations import enroll_here
    from gonogo_service.kit.problems import Problem
    from gonogo_service.kit.signing import service_key
    from gonogo_storage.access import hosts
    from gonogo_storage.db.engine import session
    from gonogo_workers.messages import identity

    service = service_key(secret).public
    with session(engine) as transaction:
        try:
            me = identity.load(folder)
            known = hosts.find_key(transaction, me.key.id)
            if known is not None and me.service == service:
                return
        except InfrastructureError:
            pass  # it has none yet, or one that can't be read
        try:
            host, key = enroll_here(transaction, name, actor="command line")
            identity.Identity(host, name, key, service).save(folder)
        except Problem as problem:
            raise JobError(str(problem)) from problem
        except OSError as problem:
            raise InfrastructureError(f"can't write {folder}: {problem.strerror}") from problem


@app.command()
def upgrade(
    enroll: str | None = typer.Option(
        None,
        metavar="NAME",
        help="Also enroll this machine as the host NAME, with its key in GONOGO_VAR_DIR: for a "
        "server that has devices of its own.",
    ),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Migrate to this version's schema; an SQLite file is copied first.

    Safe to run several times, and from several places at once.
    """
    from gonogo_cli.kit import show
    from gonogo_cli.operate.database import configure, engine
    from gonogo_storage.ops import schema

    with engine() as database:
        before = schema.state(database)
        copy = copy_sqlite(database) if before is schema.SchemaState.behind else None
        schema.upgrade(database)
        after = schema.state(database)
        if enroll is not None:
            config = configure()
            if config.secret_key is None:
                raise JobError(
                    "GONOGO_SECRET_KEY must be set: a host has to know the service's key"
                )
            folder = Path(config.var_dir).absolute()
            enroll_host(database, enroll, folder, config.secret_key.get_secret_value())
    if as_json:
        show.print_json(
            {"before": before.value, "after": after.value, "copy": str(copy) if copy else None}
        )
    else:
        print(
            f"schema: was {before.value}, is {after.value}"
            + (f"; the file before the upgrade: {copy}" if copy else "")
        )

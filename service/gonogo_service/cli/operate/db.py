"""`gonogo db`: migrate the database, back it up, restore it and prune it.

In production, upgrading is one step before the new processes start.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from gonogo.cli.kit.body_options import JSON
from gonogo.cli.kit.groups import group
from gonogo.errors import InfrastructureError, JobError

if TYPE_CHECKING:
    from sqlalchemy import Engine

app = group()


def copy_sqlite(engine: Engine) -> Path | None:
    """Copy an SQLite file that is about to be migrated, and return the copy's path.

    The copy is consistent and replaces an older one. None where there is no such file.
    """
    from gonogo_service.operate import backups

    name = engine.url.database if engine.dialect.name == "sqlite" else None
    if name is None or not Path(name).exists():
        return None
    copy = Path(name).with_suffix(".before-upgrade.sqlite")
    fresh = copy.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    backups.copy_sqlite(Path(name), fresh)
    fresh.replace(copy)
    return copy


def join_here(engine: Engine, name: str, url: str, folder: Path, secret: str) -> None:
    """Make this machine a host of the service at `url`, unless its token works already.

    `secret` is GONOGO_SECRET_KEY. Raises JobError for a bad name, InfrastructureError where the
    folder can't be written.
    """
    from gonogo_service.hosts import store as hosts
    from gonogo_service.kit.database.engine import session
    from gonogo_service.kit.principals import Keys
    from gonogo_service.kit.problems import Problem
    from gonogo_workers.server import host_file

    keys, address = Keys(secret), host_file.checked_url(url)
    with session(engine) as transaction:
        try:
            me = host_file.load(folder)
            if hosts.by_token(transaction, keys, me.token) is not None:
                if me.url != address:  # another port than the last time
                    host_file.Host(address, me.name, me.token).save(folder)
                return
        except InfrastructureError:
            pass  # it has none yet, or one that can't be read
        try:
            code = hosts.add(transaction, keys, name, actor="command line").secret
            issued = hosts.join(transaction, keys, code)
            host_file.Host(address, name, issued.secret).save(folder)
        except Problem as problem:
            raise JobError(str(problem)) from problem
        except OSError as problem:
            raise InfrastructureError(f"can't write {folder}: {problem.strerror}") from problem


@app.command()
def upgrade(
    host: str | None = typer.Option(
        None,
        metavar="NAME",
        help="Also make this machine the host NAME, with its token in GONOGO_VAR_DIR: for a "
        "server that has devices of its own.",
    ),
    host_url: str | None = typer.Option(
        None, "--host-url", help="The address at which that host asks; default: GONOGO_URL."
    ),
    as_json: bool = JSON,
) -> None:
    """Migrate to this version's schema; an SQLite file is copied first.

    Safe to run several times, and from several places at once.
    """
    from gonogo_service.cli.operate.database import configure, engine
    from gonogo_service.operate import schema

    with engine() as database:
        before = schema.state(database)
        copy = copy_sqlite(database) if before is schema.SchemaState.behind else None
        schema.upgrade(database)
        after = schema.state(database)
        if host is not None:
            config = configure()
            if config.secret_key is None:
                raise JobError(
                    "GONOGO_SECRET_KEY must be set: tokens are stored as hashes under it"
                )
            url = host_url or config.url or f"http://127.0.0.1:{config.port}"
            folder = Path(config.var_dir).absolute()
            join_here(database, host, url, folder, config.secret_key.get_secret_value())
    record = {"before": before.value, "after": after.value, "copy": str(copy) if copy else None}
    text = f"; the file before the upgrade: {copy}" if copy else ""
    _tell(record, f"schema: was {before.value}, is {after.value}{text}", as_json)


@app.command()
def backup(
    file: Path = typer.Argument(..., metavar="FILE", help="The new file."),
    as_json: bool = JSON,
) -> None:
    """Write the database, as of one moment, to a new file while the service runs.

    SQLite's backup is an SQLite file. That of PostgreSQL is made by pg_dump, in its custom format.
    """
    from gonogo_service.cli.operate.database import engine
    from gonogo_service.operate import backups

    with engine() as database:
        try:
            backups.backup(database, file)
        except OSError as problem:
            raise JobError(f"can't write the backup: {problem}") from problem
    size = file.stat().st_size
    _tell({"file": str(file), "bytes": size}, f"backed up: {file}, {size:,} bytes", as_json)


@app.command()
def restore(
    file: Path = typer.Argument(..., metavar="FILE", help="A file that `gonogo db backup` wrote."),
    as_json: bool = JSON,
) -> None:
    """Fill an empty database from a backup, and migrate it to this version's schema.

    Start the service afterwards, with the GONOGO_SECRET_KEY of the one that was backed up.
    """
    from gonogo_service.cli.operate.database import engine
    from gonogo_service.operate import backups, schema

    with engine() as database:
        try:
            backups.restore(file, database)
        except OSError as problem:
            raise JobError(f"can't read the backup: {problem}") from problem
        state = schema.state(database).value
    record = {"file": str(file), "schema": state}
    _tell(record, f"restored: {file}; the schema is {state}", as_json)


@app.command()
def prune(
    dry_run: bool = typer.Option(False, "--dry-run", help="Say what would be removed."),
    as_json: bool = JSON,
) -> None:
    """Remove what is older than the settings allow, as the background does by itself.

    Jobs, their verdicts and their counts stay. So does all that is evidence of an open flag, the
    newest job of each test, and what GONOGO_KEEP_BUILDS or the label `keep` names.
    """
    from gonogo_service.cli.operate.database import configure, engine

    config = configure()  # says what is missing before the next imports do
    from gonogo_service.background.retention import policy_of
    from gonogo_service.operate import retention

    policy = policy_of(config)
    with engine() as database:
        now = retention.current_time(database)
        if dry_run:
            removed = retention.estimate(database, policy, now=now)
        else:
            removed = retention.prune(database, policy, now=now, actor="command line")
    lines = [
        f"{tier}: {amount.rows} rows of {amount.jobs} jobs, about {amount.bytes} bytes "
        f"({f'older than {days} days' if (days := policy.days[tier]) else 'kept for ever'})"
        for tier, amount in removed.tiers.items()
    ]
    lines += ["nothing was removed: this was --dry-run"] if dry_run else []
    _tell({"dry_run": dry_run, **removed.to_json()}, "\n".join(lines), as_json)


def _tell(record: Mapping[str, Any], text: str, as_json: bool) -> None:
    from gonogo.cli.kit import show

    if as_json:
        show.print_json(record)
    else:
        print(text)

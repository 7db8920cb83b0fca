"""`gonogo secrets`: make the secrets of docker-compose.yml, in files for their owner only."""

from __future__ import annotations

import base64
import os
import secrets as random
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import typer

from gonogo.errors import JobError
from gonogo_service.cli.operate import broker_accounts

SERVER, WORKER = ".env", "worker.env"
"""Settings of the services that reach the database, and of device workers."""
HEADS = {
    SERVER: "# Settings of the server: docker-compose.yml passes all of them to its processes.",
    WORKER: "# Settings of device workers on any host: no secret of the database or of logins.",
}


def secrets(
    folder: Path = typer.Option(Path(), "--folder", help="Folder of docker-compose.yml."),
) -> None:
    """Make the secrets of docker-compose.yml: .env for the server, worker.env for device workers.

    users.acl has the accounts of both in Redis. Values that a file has already stay as they are, so
    that running it again is harmless.
    """
    if not folder.is_dir():
        raise JobError(f"{folder} is not a folder")
    needed = {
        SERVER: {
            "POSTGRES_PASSWORD": random.token_hex(24),
            "GONOGO_SECRET_KEY": _key(),
            "GONOGO_BROKER_URL": _broker_url(broker_accounts.SERVICE),
        },
        WORKER: {"GONOGO_BROKER_URL": _broker_url(broker_accounts.WORKER)},
    }
    for name, values in needed.items():
        added = add(folder / name, values, HEADS[name])
        typer.echo(f"{folder / name}: " + (f"added {', '.join(added)}" if added else "complete"))
    passwords = {
        account: urlsplit(existing(folder / name)["GONOGO_BROKER_URL"]).password or ""
        for account, name in ((broker_accounts.SERVICE, SERVER), (broker_accounts.WORKER, WORKER))
    }
    accounts = folder / broker_accounts.FILE
    # the server of Redis runs as another user; the file holds hashes of random passwords only
    accounts.write_text(broker_accounts.acl(passwords))
    accounts.chmod(0o644)
    typer.echo(f"{accounts}: written from these passwords")


def existing(path: Path) -> dict[str, str]:
    """Return the variables of a file of NAME=value lines; none where it doesn't exist."""
    if not path.exists():
        return {}
    lines = (line.partition("=") for line in path.read_text().splitlines())
    return {name.strip(): value.strip() for name, _, value in lines if not name.startswith("#")}


def add(path: Path, values: Mapping[str, str], head: str) -> list[str]:
    """Add the variables that the file lacks; return their names. Only the owner may read it."""
    known = existing(path)
    missing = [name for name in values if not known.get(name)]
    is_new = not path.exists()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "a") as file:
        os.fchmod(file.fileno(), 0o600)
        if is_new:
            file.write(f"{head}\n")
        file.writelines(f"{name}={values[name]}\n" for name in missing)
    return missing


def _broker_url(account: str) -> str:
    return f"redis://{account}:{random.token_hex(24)}@redis:6379/0"


def _key() -> str:
    return base64.b64encode(random.token_bytes(48)).decode()

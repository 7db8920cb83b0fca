"""`gonogo secrets`: make the secrets of docker-compose.yml, in files for their owner only."""

from __future__ import annotations

import base64
import os
import secrets as random
from collections.abc import Mapping
from pathlib import Path

import typer

from gonogo.errors import JobError

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

    Values that a file has already stay as they are, so that running it again is harmless.
    """
    if not folder.is_dir():
        raise JobError(f"{folder} is not a folder")
    worker_key = existing(folder / SERVER).get("GONOGO_WORKER_KEY") or _key()
    needed = {
        SERVER: {
            "POSTGRES_PASSWORD": random.token_hex(24),
            "GONOGO_SECRET_KEY": _key(),
            "GONOGO_WORKER_KEY": worker_key,
        },
        WORKER: {"GONOGO_WORKER_KEY": worker_key},
    }
    for name, values in needed.items():
        added = add(folder / name, values, HEADS[name])
        typer.echo(f"{folder / name}: " + (f"added {', '.join(added)}" if added else "complete"))


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


def _key() -> str:
    return base64.b64encode(random.token_bytes(48)).decode()

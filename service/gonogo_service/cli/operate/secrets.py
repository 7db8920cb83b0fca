"""`gonogo secrets`: make the secrets of docker-compose.yml, in files for their owner only."""

from __future__ import annotations

import base64
import hashlib
import os
import secrets as random
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import typer

from gonogo.errors import JobError

SERVER, WORKER = ".env", "worker.env"
"""Settings of the services that reach the database, and of device workers."""
HEADS = {
    SERVER: "# Settings of the server: docker-compose.yml passes all of them to its processes.",
    WORKER: "# Settings of device workers on any host: no secret of the database or of logins.",
}
ACCOUNTS_FILE = "users.acl"
ACCOUNTS = {SERVER: "gonogo", WORKER: "worker"}
"""File -> the account of Redis or Valkey whose password it has. docs/protocol.md explains the
rules: a queue only wakes workers, and an account keeps a host from waking those of others."""
RULES = {
    # for a health check: without an account one learns that the server lives, and nothing else
    "default": "on nopass resetkeys resetchannels -@all +ping",
    ACCOUNTS[SERVER]: "on {password} ~* resetchannels +@all -@admin -@dangerous +info",
    ACCOUNTS[WORKER]: (
        "on {password} resetkeys resetchannels -@all"
        # connect
        " +auth +hello +ping +select +client|setinfo +client|setname"
        # take chunks of its queues; put one back when it stops
        " (+brpop +rpush ~*.*.*)"
    ),
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
    passwords = {}
    for name, account in ACCOUNTS.items():
        url = f"redis://{account}:{random.token_hex(24)}@redis:6379/0"
        needed = {"GONOGO_BROKER_URL": url}
        if name == SERVER:
            key = base64.b64encode(random.token_bytes(48)).decode()
            needed = {"POSTGRES_PASSWORD": random.token_hex(24), "GONOGO_SECRET_KEY": key, **needed}
        added = _add(folder / name, needed)
        typer.echo(f"{folder / name}: " + (f"added {', '.join(added)}" if added else "complete"))
        known = urlsplit(existing(folder / name)["GONOGO_BROKER_URL"])
        passwords[account] = known.password or ""
    accounts = folder / ACCOUNTS_FILE
    # the server of Redis runs as another user; the file holds hashes of random passwords only
    accounts.write_text(acl(passwords))
    accounts.chmod(0o644)
    typer.echo(f"{accounts}: written from these passwords")


def existing(path: Path) -> dict[str, str]:
    """Return the variables of a file of NAME=value lines; none where it doesn't exist."""
    lines = path.read_text().splitlines() if path.exists() else []
    pairs = (line.partition("=") for line in lines if not line.startswith("#"))
    return {name.strip(): value.strip() for name, _, value in pairs}


def _add(path: Path, values: Mapping[str, str]) -> list[str]:
    """Add the variables that the file lacks; return their names. Only the owner may read it."""
    known, is_new = existing(path), not path.exists()
    missing = [name for name in values if not known.get(name)]
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "a") as file:
        os.fchmod(file.fileno(), 0o600)
        head = [HEADS[path.name]] if is_new else []
        file.writelines(f"{line}\n" for line in (*head, *(f"{n}={values[n]}" for n in missing)))
    return missing


def acl(passwords: Mapping[str, str]) -> str:
    """Return the file of accounts for these passwords by account; it holds only their hashes."""
    lines = []
    for name, rule in RULES.items():
        digest = hashlib.sha256(passwords.get(name, "").encode()).hexdigest()
        lines.append(f"user {name} {rule.format(password='#' + digest)}\n")
    return "".join(lines)

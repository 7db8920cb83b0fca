"""`gonogo hosts`: machines with devices. They are invited on the server, and enroll on the host."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

import gonogo.settings
from gonogo.cli.kit import cells, nouns, show
from gonogo.cli.kit.body_options import JSON
from gonogo.cli.kit.client import Client
from gonogo.errors import JobError
from gonogo_service.hosts.noun import HOSTS

if TYPE_CHECKING:
    from gonogo_workers.messages.identity import Identity

HOST = typer.Argument(help="Its name, as devices have it before the slash.")

app = nouns.app_of(HOSTS)


@app.command()
def invite(
    name: str = typer.Argument(help="The name that the host gets; its devices begin with it."),
    hours: float = typer.Option(
        24.0, min=0.1, max=24 * 7, help="The code works once, for this many hours."
    ),
    queue: list[str] = typer.Option(
        ["*"],
        "--queue",
        help="Pattern of queues, such as 'ttnn.wormhole.*': the host may run no attempt of "
        "another one; repeatable; default: any.",
    ),
    as_json: bool = JSON,
) -> None:
    """Make a one-time code for a new host, or for one that has lost its key, and print it.

    With GONOGO_URL the server makes it (scope admin); without, it is made beside the database.
    """
    config = gonogo.settings.load()
    if config.url is not None and config.database_url is None:
        with Client() as client:
            body = {"name": name, "hours": hours, "queues": queue}
            invitation: dict[str, Any] = client.call("POST", "/hosts:invite", body=body)
    else:
        invitation = _beside_the_database(name, hours, queue)
    if as_json:
        show.print_json(invitation)
    else:
        end = cells.words(invitation["expires_at"])
        show.tell(
            f"run `gonogo hosts enroll CODE` on {name} before {end}, with the code below;"
            f" `gonogo invitations revoke {invitation['id']}` takes it back"
        )
        print(invitation["code"])


@app.command()
def enroll(
    code: str = typer.Argument(help="The code that `gonogo hosts invite` printed; - reads it."),
    as_json: bool = JSON,
) -> None:
    """Enroll this machine with a one-time code. It needs GONOGO_BROKER_URL, and nothing else.

    Its private key goes into host.json in GONOGO_VAR_DIR, for the current user only.
    """
    from gonogo_workers.messages import exchange

    text = input() if code == "-" else code
    try:
        with _broker() as client:
            me = exchange.enroll(client, text, _folder())
    except ValueError as problem:
        raise JobError(str(problem)) from problem
    _print_identity(me, "enrolled", as_json)


@app.command()
def rotate(as_json: bool = JSON) -> None:
    """Replace the key of this machine. Its workers go on with the new one."""
    from gonogo_workers.messages import exchange

    with _broker() as client:
        _print_identity(exchange.rotate(client, _folder()), "rotated", as_json)


@app.command()
def revoke(
    name: str = HOST,
    reason: str = typer.Option(..., help="Say why; the audit log keeps it."),
    as_json: bool = JSON,
) -> None:
    """Refuse every message of a host from now on. Needs the scope admin."""
    with Client() as client:
        record = client.call("POST", f"{HOSTS.of(name)}:revoke", body={"reason": reason})
        nouns.stored(HOSTS, client, record, "revoked", as_json=as_json)


def _folder() -> Path:
    return Path(gonogo.settings.load().var_dir).absolute()


def _broker() -> Any:
    url = gonogo.settings.load().broker_url
    if url is None:
        raise JobError("GONOGO_BROKER_URL must be set: a host reaches the service through it")
    from gonogo_workers.queue import redis_client

    return redis_client(url)


def _print_identity(me: Identity, done: str, as_json: bool) -> None:
    path = _folder() / "host.json"
    if as_json:
        show.print_json({"host": me.name, "id": me.id, "key": me.key.id, "file": str(path)})
    else:
        print(f"{done} as {me.name}; its private key is in {path}")


def _beside_the_database(name: str, hours: float, queues: list[str]) -> dict[str, Any]:
    from gonogo_service.cli.operate.database import configure, engine
    from gonogo_service.hosts.invitation_codes import invite as make
    from gonogo_service.kit.database.engine import session
    from gonogo_service.kit.problems import Problem

    with engine() as database, session(database) as transaction:
        secret = configure().secret_key
        if secret is None:
            raise JobError("GONOGO_SECRET_KEY must be set: the code contains the service's key")
        try:
            issued = make(
                transaction, secret.get_secret_value(), name, hours, queues, actor="command line"
            )
        except Problem as problem:
            raise JobError(str(problem)) from problem
    return {
        "id": issued.id,
        "code": issued.code,
        "name": issued.name,
        "expires_at": issued.expires_at.isoformat(),
    }

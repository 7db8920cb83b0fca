"""`gonogo hosts`: machines with devices. They are added on the server, and join on the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

import gonogo.settings
from gonogo.cli.kit import cells, nouns, show
from gonogo.cli.kit.body_options import JSON, body_of, with_options
from gonogo.cli.kit.client import Client
from gonogo.errors import JobError
from gonogo_service.hosts.noun import ADD, HOSTS

app = nouns.app_of(HOSTS)


def add(as_json: bool, **options: Any) -> None:
    """Make the code of a host and print it."""
    config, body = gonogo.settings.load(), body_of(ADD, options)
    if config.url is not None and config.database_url is None:
        with Client() as client:
            added: dict[str, Any] = client.call("POST", "/hosts:add", body=body)
    else:
        added = _beside_the_database(**body)
    if as_json:
        show.print_json(added)
    else:
        end, url = cells.words(added["expires_at"]), config.url or "URL"
        show.tell(
            f"run `gonogo hosts join {url} CODE` on {body['name']} before {end}, with this code:"
        )
        print(added["code"])


WHERE = "With GONOGO_URL the server makes it (scope admin), without it is made beside the database."
app.command("add", help=f"{ADD.sentence} {WHERE}")(with_options(add, ADD))


@app.command()
def join(
    url: str = typer.Argument(help="The service's address, such as https://gonogo.example.org."),
    code: str = typer.Argument(help="The code that `gonogo hosts add` printed; - reads it."),
    as_json: bool = JSON,
) -> None:
    """Join a service with a one-time code.

    This host's token goes into host.json in GONOGO_VAR_DIR, for the current user only. If the code
    names your own certificate authority, set GONOGO_CA_FILE to its certificate first.
    """
    from gonogo.cli.kit import authority
    from gonogo_workers.server.host_file import Host, checked_url

    address = checked_url(url)
    text = input() if code == "-" else code
    authority.check(text, gonogo.settings.load().ca_file)
    answer = _request(None, address, "/hosts:join", {"code": text})
    host = Host(address, str(answer["host"]), str(answer["token"]))
    _save(host, answer, "joined", as_json)


@app.command()
def rotate(as_json: bool = JSON) -> None:
    """Replace the token of this host. Its workers go on with the new one."""
    from gonogo_workers.server.host_file import Host, load

    me = load(_folder())
    answer = _request(me, me.url, "/hosts/self:rotate", {})
    _save(Host(me.url, me.name, str(answer["token"])), answer, "rotated", as_json)


def _folder() -> Path:
    return Path(gonogo.settings.load().var_dir).absolute()


def _request(me: Any, url: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    from gonogo_workers.server.client import Refused, Server

    server = Server(lambda: me, url, gonogo.settings.load().ca_file)
    try:
        return server.request("POST", path, body)
    except Refused as problem:
        raise JobError(problem.detail) from problem
    finally:
        server.close()


def _save(host: Any, answer: dict[str, Any], done: str, as_json: bool) -> None:
    from gonogo_workers.server.host_file import FILE

    host.save(_folder())
    path, ends = _folder() / FILE, answer["expires_at"]
    if as_json:
        show.print_json({"host": host.name, "file": str(path), "expires_at": ends})
    else:
        print(f"{done} as {host.name}; its token is in {path} and ends {cells.words(ends)}")


def _beside_the_database(**body: Any) -> dict[str, Any]:
    from gonogo_service.cli.operate.database import transaction
    from gonogo_service.hosts import store

    with transaction() as (session, keys):
        ca_file = gonogo.settings.load().ca_file
        issued = store.add(session, keys, **body, actor="command line", ca_file=ca_file)
        ends = issued.host.code_expires_at
        assert ends is not None
        return {"name": issued.host.name, "code": issued.secret, "expires_at": ends.isoformat()}

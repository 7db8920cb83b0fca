"""`gonogo tokens`: bearer tokens. The first one is made beside the server's database."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import typer

import gonogo.settings
from gonogo.cli.kit import cells, nouns, show
from gonogo.cli.kit.body_options import body_of, with_options
from gonogo.cli.kit.client import Client
from gonogo.cli.kit.noun import Verb
from gonogo.errors import JobError
from gonogo_service.people.noun import CREATE, ROTATE, TOKENS

app = nouns.app_of(TOKENS)
WHERE = (
    " With GONOGO_TOKEN the server makes it (scope admin); without, it is made beside the database."
    " --days 0: it never ends."
)


def create(as_json: bool, **options: Any) -> None:
    """Make a token and print it."""
    body = _body(CREATE, options)
    if gonogo.settings.load().token is not None:
        with Client() as client:
            issued = client.call("POST", TOKENS.address, body=body)
    else:
        body = {"scopes": ["read"], **body}
        issued = _beside_the_database(lambda session, module: module.issue_token(session, **body))
    _print(issued, as_json)


def rotate(identity: str, as_json: bool, **options: Any) -> None:
    """Replace a token and print the new one."""
    body = _body(ROTATE, options)
    if gonogo.settings.load().token is not None:
        with Client() as client:
            path = f"{nouns.address_of(TOKENS, client, identity)}:rotate"
            issued = client.call("POST", path, body=body)
    else:
        issued = _beside_the_database(
            lambda session, module: module.rotate_token(session, _token(session, identity), **body)
        )
    _print(issued, as_json)


app.command("create", help=CREATE.sentence + WHERE)(with_options(create, CREATE))
IDENTITY = {"identity": (str, typer.Argument(metavar="ID", help=TOKENS.argument_help))}
app.command("rotate", help=ROTATE.sentence + WHERE)(with_options(rotate, ROTATE, IDENTITY))


def _body(verb: Verb, options: dict[str, Any]) -> dict[str, Any]:
    body = body_of(verb, options)
    return body | {"days": None} if body.get("days") == 0 else body


def _print(issued: dict[str, Any], as_json: bool) -> None:
    if as_json:
        show.print_json(issued)
        return
    end = issued["expires_at"]
    after = f"{cells.words(end)}; `gonogo tokens rotate {issued['id']}` makes the next one"
    print(f"ends {after if end else 'never'}", file=sys.stderr)
    print(issued["token"])


def _token(session: Any, text: str) -> Any:
    """Return the token with this ID, or the only valid one with this name. Raises JobError."""
    from gonogo_service.kit.database.encoding import utcnow
    from gonogo_service.kit.database.ids import is_id
    from gonogo_service.people import store as tokens
    from gonogo_service.people.model import TokenRow

    named = [item for item in tokens.named(session, text) if item.valid(utcnow())]
    if len(named) > 1:
        ids = ", ".join(item.id for item in named)
        raise JobError(f"{len(named)} tokens are called {text!r}: use an id: {ids}")
    key = named[0].id if named else text
    token = session.get(TokenRow, key, with_for_update=True) if is_id(key) else None
    if token is None:
        raise JobError("there is no such token; `gonogo tokens list` has their IDs")
    return token


def _beside_the_database(make: Callable[[Any, Any], str]) -> dict[str, Any]:
    from gonogo_service.cli.operate.database import transaction
    from gonogo_service.kit import rows
    from gonogo_service.people import issuing
    from gonogo_service.people import store as tokens
    from gonogo_service.people.model import TokenRow

    with transaction() as (session, keys):
        text = make(session, issuing)
        row = tokens.by_hash(session, keys.digest("token", text))
        record = rows.answer_of(TokenRow).model_validate(row).model_dump(mode="json")
        return {**record, "token": text}

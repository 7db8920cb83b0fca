"""The token file of `gonogo up`: with it, other users of this machine need a token, too."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from gonogo.errors import JobError
from gonogo.settings import secrets

OPTION = "--token-file"
NAME = "gonogo up"
"""The name of the token in lists."""
LEAST_LIFE = timedelta(days=14)
"""A stored token that ends sooner is replaced at the start."""


def ensure(path: Path, database_url: str, secret_key: str) -> None:
    """Write an admin's token into a file that only its owner may read, unless a valid one is there.

    Raises JobError where the file holds something else, or where others may read it.
    """
    from gonogo_service.kit.database.encoding import utcnow
    from gonogo_service.kit.database.engine import make_engine, session
    from gonogo_service.kit.principals import Keys
    from gonogo_service.people import store as tokens
    from gonogo_service.people.auth import well_formed
    from gonogo_service.people.issuing import issue_token

    text = stored(path)
    if text and not well_formed(text):
        raise JobError(f"{OPTION}: {path} holds something else than a token; name another file")
    keys, engine = Keys(secret_key), make_engine(database_url)
    try:
        with session(engine) as transaction:
            known = tokens.by_hash(transaction, keys.digest("token", text)) if text else None
            if known is None or not known.valid(utcnow() + LEAST_LIFE):
                token = issue_token(transaction, NAME, ["admin"], actor="local", keys=keys)
                secrets.write_file(path, f"{token}\n")
    except OSError as problem:
        raise JobError(f"{OPTION}: {path} can't be written: {problem.strerror}") from None
    finally:
        engine.dispose()


def stored(path: Path) -> str:
    """Return the token in the file; "" where there is none. Raises JobError."""
    if not path.exists() or not path.stat().st_size:
        return ""
    try:
        return secrets.read_file(str(path), OPTION)
    except secrets.SettingsError as problem:
        raise JobError(str(problem)) from None

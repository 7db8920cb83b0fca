"""The message of another CI system about a commit, and the texts that every event has."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from gonogo.errors import FieldError
from gonogo.spec.validation import WHOLE, Model, checked, in_words

COMMIT = "commit"
"""The event of other CI systems."""
SHA = re.compile(r"[0-9a-f]{7,64}")
REPOSITORY = re.compile(r"(?!\.)[A-Za-z0-9._-]+(/(?!\.\.?(/|$))[A-Za-z0-9._-]+)*")
MAX_PATHS = 20_000
MAX_TEXT = 500
MAX_NUMBER = 2**31 - 1
_OF_SHA = "7 to 64 hexadecimal digits"
_OF_REPOSITORY = "owner/name, at most 200 characters"
_OF_TEXT = f"1 to {MAX_TEXT} printable characters"


def read_sha(value: object, path: str) -> str:
    """Return the hash of a commit in lower case. Raises FieldError."""
    if not isinstance(value, str) or not SHA.fullmatch(value.lower()):
        raise FieldError(path, value, "isn't a commit", limit=_OF_SHA)
    return value.lower()


def read_repository(value: object, path: str) -> str:
    """Return the name of a repository. Raises FieldError."""
    if not isinstance(value, str) or len(value) > 200 or not REPOSITORY.fullmatch(value):
        raise FieldError(path, value, "isn't a repository", limit=_OF_REPOSITORY)
    return value


def read_text(value: object, path: str) -> str:
    """Return a short printable text. Raises FieldError."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_TEXT or not value.isprintable():
        raise FieldError(path, value, "must be text", limit=_OF_TEXT)
    return value


def _limits(read: Callable[[object, str], str], limit: str) -> tuple[Any, Any]:
    return Field(json_schema_extra=in_words(limit)), checked(lambda value: read(value, ""))


_Sha = Annotated[str, *_limits(read_sha, _OF_SHA)]
_Repository = Annotated[str, *_limits(read_repository, _OF_REPOSITORY)]
_Text = Annotated[str, *_limits(read_text, _OF_TEXT)]


class NamedBuilds(Model):
    """The builds of the two commits, where the other CI system names them."""

    head: _Text | None = None
    base: _Text | None = None


class CommitData(Model):
    """The `data` of a message of the type `commit`."""

    repository: _Repository
    sha: _Sha
    base: _Sha | None = None
    branch: _Text | None = None
    pull_request: Annotated[int, Field(ge=1, le=MAX_NUMBER), WHOLE] | None = None
    fork: bool = False
    paths: list[str] | None = Field(None, max_length=MAX_PATHS)
    builds: NamedBuilds | None = None
    action: _Text | None = None
    again: bool = False


class TypedMessage(Model):
    """A message of any type; the fields beside it concern that type."""

    model_config = ConfigDict(extra="ignore")

    type: Annotated[str, Field(json_schema_extra=in_words(COMMIT))]


class CommitMessage(TypedMessage):
    """A message of the type `commit`."""

    data: CommitData

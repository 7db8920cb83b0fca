"""Read and check JSON bodies before FastAPI does, and large ones off the event loop.

A body is UTF-8 without a key twice, and holds only what databases and other languages can hold.
"""

from __future__ import annotations

import email.message
import math
from collections.abc import Callable, Coroutine
from typing import Any, Final

from anyio import to_thread
from fastapi import Request, Response
from fastapi._compat import ModelField
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from gonogo.spec import json_text
from gonogo_service.kit.problems import BadField, Problem

SMALL: Final = 4096
"""Bytes; a smaller body is checked in less time than another thread takes to start on it."""

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def reading_first(handle: Handler, field: ModelField) -> Handler:
    """Return a handler that reads the body for `handle`, which then finds a checked value."""

    async def handle_checked(request: Request) -> Response:
        if _is_json(request.headers.get("content-type")):
            raw = await request.body()
            if len(raw) > SMALL:
                request._json = await to_thread.run_sync(_checked, raw, field)
            elif raw:
                request._json = _checked(raw, field)
        return await handle(request)

    return handle_checked


def _is_json(content_type: str | None) -> bool:
    if not content_type:
        return False
    message = email.message.Message()
    message["content-type"] = content_type
    subtype = message.get_content_subtype()
    return message.get_content_maintype() == "application" and (
        subtype == "json" or subtype.endswith("+json")
    )


def _checked(raw: bytes, field: ModelField) -> Any:
    """Return the body's model, which FastAPI then takes as it is.

    Raises Problem for what is no JSON text, and RequestValidationError for wrong fields.
    """
    value = parse(raw, nonfinite=True)
    _check(value, "")
    try:
        return field._type_adapter.validate_python(value)
    except ValidationError as problem:
        errors: list[Any] = [
            {**item, "loc": ("body", *item["loc"])} for item in problem.errors(include_url=False)
        ]
        raise RequestValidationError(errors, body=value) from None


def parse(raw: bytes, *, nonfinite: bool = False) -> Any:
    """Return the value of a JSON body. Raises Problem."""
    try:
        return json_text.loads(raw, nonfinite=nonfinite)
    except json_text.BadEncoding as problem:
        raise Problem(400, f"The body {problem}.", slug="not-utf-8") from None
    except RecursionError:
        raise Problem(400, "The body is nested too deeply.", slug="not-json") from None
    except ValueError as problem:  # repeated keys, too
        reason = str(problem)
        reason = reason if isinstance(problem, json_text.RepeatedKey) else f"is not JSON ({reason})"
        raise BadField("body", None, reason) from None


def _check(value: Any, path: str) -> None:
    match value:
        case float() if not math.isfinite(value):
            raise BadField(path or "body", value, "is not a JSON number", limit="finite")
        case str():
            _check_text(value, path)
        case dict():
            for name, member in value.items():
                _check_text(name, path)
                _check(member, f"{path}.{name}" if path else name)
        case list():
            for index, member in enumerate(value):
                # most members of long lists: without a call for each, it is done in a tenth of the
                # time
                if isinstance(member, int) or (
                    isinstance(member, str) and member.isascii() and "\0" not in member
                ):
                    continue
                _check(member, f"{path}.{index}" if path else str(index))


def _check_text(text: str, path: str) -> None:
    if "\0" in text or (
        not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)
    ):
        raise BadField(
            path or "body", text, "contains NUL or a lone surrogate, which is not valid text"
        )

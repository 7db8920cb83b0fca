"""Options of a command from the fields of a body, and the body from what was given."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from gonogo.cli.kit.noun import Verb
from gonogo.errors import FieldError

JSON = typer.Option(False, "--json", help="Print JSON.")
Options = Mapping[str, tuple[Any, Any]]
"""Name -> type, and typer's option or argument."""


def with_options(
    function: Callable[..., None],
    verb: Verb,
    before: Options | None = None,
    *,
    is_change: bool = False,
) -> Callable[..., None]:
    """Return a command's function with an option per field of the verb's body, and --json.

    The function gets them by their fields' names; `body_of` makes the body of them. A field that is
    an object has no option.
    """
    assert verb.body is not None
    parameters = dict(before or {})
    for name, field in verb.body.model_fields.items():
        if name not in parameters and (option := _option(name, field, verb, is_change)) is not None:
            parameters[name] = option
    return signed(function, {**parameters, "as_json": (bool, JSON)})


def signed(
    function: Callable[..., None], parameters: Mapping[str, tuple[Any, Any]]
) -> Callable[..., None]:
    """Return the function with these parameters: name -> (type, typer's option or argument)."""
    signature = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in parameters.items()
    ]
    function.__signature__ = inspect.Signature(signature)  # type: ignore[attr-defined]
    function.__annotations__ = {name: kind for name, (kind, _) in parameters.items()}
    return function


def _option(name: str, field: FieldInfo, verb: Verb, is_change: bool) -> tuple[Any, Any] | None:
    """Return the type and the option of a body's field; None for an object."""
    kind = _plain(field.annotation)
    words = field.description or ""
    text = words and f"{words.rstrip('.')}."
    if name in verb.positional:
        return str, typer.Argument(metavar=name.upper(), help=text)
    word = verb.options.get(name, f"--{(_one(name) if kind in (list, dict) else name)}")
    option = word.replace("_", "-")
    if kind in (list, dict):
        more = "NAME=VALUE; repeatable" if kind is dict else "Repeatable"
        return list[str], typer.Option([], option, help=f"{text} {more}.".strip())
    if kind is None or option == "":
        return None
    if kind is bool and is_change and "/" not in option:
        option = f"{option}/--no{option[1:]}"
    if field.is_required():
        return kind, typer.Option(..., option, help=text)
    return kind | None, typer.Option(None, option, help=text)


def _plain(annotation: Any) -> type | None:
    """Return str, int, float, bool, list or dict for a field's type; None for an object."""
    if get_origin(annotation) in (Union, UnionType):
        kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
        return _plain(kinds[0]) if len(kinds) == 1 else None
    origin = get_origin(annotation) or annotation
    if origin is Annotated:
        return _plain(get_args(annotation)[0])
    if origin is Literal:
        return str
    if origin in (list, dict):
        return origin if _plain(get_args(annotation)[-1]) is str else None
    if isinstance(origin, type) and issubclass(origin, str):
        return str
    return origin if origin in (int, float, bool) else None


def _one(name: str) -> str:
    """Return the singular of a field's name."""
    for ending, short in (("ies", "y"), ("ches", "ch"), ("sses", "ss"), ("s", "")):
        if name.endswith(ending):
            return name.removesuffix(ending) + short
    return name


def body_of(verb: Verb, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of the options that were named; other fields stay as they are."""
    assert verb.body is not None
    body = given(**options)
    for name, value in body.items():
        if _plain(verb.body.model_fields[name].annotation) is dict:
            body[name] = pairs(value, verb.options.get(name, f"--{_one(name)}"))
    return body


def pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """Return repeated NAME=VALUE as an object. Raises FieldError."""
    for text in texts:
        if not text.partition("=")[0] or "=" not in text:
            reason = "has no name" if "=" in text else "has no ="
            raise FieldError(option, text, reason, limit="NAME=VALUE")
    return dict(text.partition("=")[::2] for text in texts)


def given(**fields: Any) -> dict[str, Any]:
    """Return the fields that were named on the command line; others stay as they are."""
    return {name: value for name, value in fields.items() if value not in (None, [], {})}

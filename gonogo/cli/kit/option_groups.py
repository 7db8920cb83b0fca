"""Options that travel together: a dataclass of them is one parameter of a command's function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with the options of its parameters that are dataclasses.

    The default of such a dataclass's field is typer's option.
    """
    hints = get_type_hints(command)
    groups: dict[str, Any] = {}
    shown: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        kind = hints[parameter.name]
        if not is_dataclass(kind):
            shown.append(parameter.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        groups[parameter.name] = kind
        kinds = get_type_hints(kind)
        shown += (
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=kinds[field.name],
            )
            for field in fields(kind)
        )

    @wraps(command)
    def called(**given: Any) -> None:
        for name, kind in groups.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        command(**given)

    called.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    called.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    return called

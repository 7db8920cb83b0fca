"""Options of a command: those that travel together, and those that mean nothing there."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints

import typer


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


def refuse_others(ctx: typer.Context, allowed: Collection[str], why: str) -> None:
    """Raise a usage error for the first option on the command line that isn't `allowed`.

    An option that nothing reads would seem to work.

    allowed: names of the command's parameters. why: what to say of the option.
    """
    for parameter in ctx.command.params:
        source = ctx.get_parameter_source(parameter.name or "")
        is_given = source is not None and source.name == "COMMANDLINE"
        if is_given and parameter.name not in allowed:
            raise typer.BadParameter(f"{max(parameter.opts, key=len)} {why}")

"""Options that a command was given, and those among them that mean nothing there."""

from __future__ import annotations

from collections.abc import Collection

import typer


def refuse_others(ctx: typer.Context, allowed: Collection[str], why: str) -> None:
    """Raise a usage error for the first option on the command line that isn't `allowed`.

    An option that nothing reads would let its user believe that it was obeyed.

    allowed: names of the command's parameters. why: what to say of the option.
    """
    for parameter in ctx.command.params:
        source = ctx.get_parameter_source(parameter.name or "")
        is_given = source is not None and source.name == "COMMANDLINE"
        if is_given and parameter.name not in allowed:
            raise typer.BadParameter(f"{max(parameter.opts, key=len)} {why}")

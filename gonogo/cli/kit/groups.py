"""Groups of commands: `gonogo NOUN VERB`, and what is said about a misspelled word."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from gonogo.fields import did_you_mean

UsageError: Any = typer.BadParameter.__base__
"""Click's, which newer versions of typer bring along under another name."""
SYNONYMS = {
    "add": "create",
    "new": "create",
    "register": "create",
    "issue": "create",
    "store": "push",
    "upload": "push",
    "put": "push",
    "get": "show",
    "describe": "show",
    "info": "show",
    "ls": "list",
    "edit": "change",
    "update": "change",
    "set": "change",
    "delete": "remove",
    "rm": "remove",
    "revoke": "remove",
    "archive": "remove",
    "end": "remove",
    "stop": "cancel",
}
"""Verbs of other programs, and ours."""

_REASONS = {
    "Input should be a valid integer, unable to parse string as an integer": "must be an integer",
    "Input should be a valid number, unable to parse string as a number": "must be a number",
    "Input should be greater than or equal to": "must be at least",
    "Input should be less than or equal to": "must be at most",
}
"""Beginnings of the reasons of typer's parser, and ours."""
_UNEXPECTED = "Got unexpected extra argument"


class Group(TyperGroup):
    """A group that names the command that was meant."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command of the first word. Raises a usage error for an unknown one."""
        word, names = args[0], self.list_commands(ctx)
        if self.get_command(ctx, word) is None and not word.startswith("-"):
            synonym = SYNONYMS.get(word, "")
            hint = (
                f"; did you mean {synonym!r}?" if synonym in names else did_you_mean(word, names)
            ) or (f" (commands: {', '.join(names)})" if len(names) <= 10 else "")
            raise UsageError(f"there is no command {word!r}{hint}", ctx=ctx)
        return super().resolve_command(ctx, args)


def group(about: str = "") -> typer.Typer:
    """Return a group of commands; `about` follows the line that `gonogo --help` has of it."""
    app = typer.Typer(
        cls=Group,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        help=about,
    )
    app.callback()(_nothing)  # with one command only, typer would make the group that command
    return app


def _nothing() -> None:
    pass


def in_one_line(error: Any) -> str:
    """Return the problem of a command line, the word that was meant, and where its help is."""
    context = error.ctx
    where = f" ({context.command_path} --help)" if context is not None else ""
    return _words(error).rstrip(".") + where


def is_help(error: Any) -> bool:
    """Return whether typer has printed a group's help because no command was named."""
    return type(error).__name__ == "NoArgsIsHelpError"


def _words(error: Any) -> str:
    option = getattr(error, "option_name", None)
    if type(error).__name__ == "NoSuchOption" and option:
        return f"there is no option {option}" + _option_meant(option, _options(error.ctx))
    parameter = getattr(error, "param", None)
    if parameter is None:
        words = str(error.message or error.format_message())
        if words.startswith(_UNEXPECTED):
            return f"unexpected: {words.rpartition('(')[2].rstrip(')')}"
        return words
    name = parameter.metavar or parameter.name.upper()
    if parameter.param_type_name == "option":
        name = max(parameter.opts, key=len)
    if type(error).__name__ == "MissingParameter":
        return f"{name} is missing"
    reason = str(error.message).removeprefix("Value error, ")
    for beginning, words in _REASONS.items():
        if reason.startswith(beginning):
            reason = words + reason.removeprefix(beginning)
    choices = _choices(parameter)
    if choices:
        given = reason.partition("' is not one of")[0].removeprefix("'")
        reason = f"{given!r} is not one of {', '.join(choices)}{did_you_mean(given, choices)}"
    return f"{name}: {reason}"


def _option_meant(option: str, names: list[str]) -> str:
    """Return "; did you mean ...?". The dashes would make any two options look alike."""
    by_word = {name.lstrip("-"): name for name in names}
    hint = did_you_mean(option.lstrip("-"), by_word)
    return hint.replace("did you mean '", "did you mean '--")


def _options(context: Any) -> list[str]:
    parameters = context.command.get_params(context) if context is not None else ()
    words = [word for option in parameters for word in (*option.opts, *option.secondary_opts)]
    return [word for word in words if word.startswith("-")]


def _choices(parameter: Any) -> list[str]:
    choices = getattr(getattr(parameter, "type_descriptor", None), "choices", None)
    choices = choices or getattr(getattr(parameter, "type", None), "choices", None) or ()
    return [str(getattr(choice, "value", choice)) for choice in choices]

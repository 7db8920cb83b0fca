"""The program. It imports a command on demand: `gonogo --help` loads neither NumPy nor SQLAlchemy.

Exit codes: 0 as hoped, 1 as bad as --fail-on, 2 usage, 3 infrastructure (no server, no database,
no broker, `var/` in use).
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand

from gonogo.cli.commands import COMMANDS as COMMANDS
from gonogo.cli.kit import extras, private_process
from gonogo.cli.kit import problem as problems
from gonogo.cli.kit.groups import Group, UsageError, in_one_line, is_help
from gonogo.cli.kit.terminal import plain

INFRASTRUCTURE = 3
"""Exit code when a server, a database, a broker or a device is not there: nothing is said about a
kernel."""


class LazyGroup(Group):
    """A group that lists its commands from COMMANDS and imports a command's module to run it."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the order of the table, which is the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> TyperCommand | None:
        """Return a placeholder with the help's line, for `gonogo --help` and completion."""
        entry = COMMANDS.get(cmd_name)
        return (
            None
            if entry is None
            else TyperCommand(name=cmd_name, help=entry.line, rich_help_panel=entry.panel)
        )

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Import and return the real command. The base class reports an unknown name."""
        name, placeholder, rest = super().resolve_command(ctx, args)
        return name, placeholder if name is None or placeholder is None else load(name), rest


def load(name: str) -> Any:
    """Import a subcommand and make its click command."""
    entry = COMMANDS[name]
    module, _, attribute = entry.target.partition(":")
    app_or_function = getattr(importlib.import_module(module), attribute)
    if type(app_or_function).__name__ == "Noun":
        from gonogo.cli.kit.nouns import app_of

        app_or_function = app_of(app_or_function)
    if not isinstance(app_or_function, typer.Typer):
        single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        single.command(name=name)(app_or_function)
        app_or_function = single
    command = typer.main.get_command(app_or_function)
    command.name = name
    if hasattr(command, "commands"):
        command.help = f"{entry.line}\n\n{command.help or ''}"
    _reflow(command)
    return command


def _reflow(command: Any) -> None:
    """Join the lines of each paragraph of the help: the terminal has a width of its own."""
    paragraphs = (command.help or "").split("\n\n")
    command.help = "\n\n".join(" ".join(lines.split()) for lines in paragraphs)
    for member in getattr(command, "commands", {}).values():
        _reflow(member)


def _version(value: bool) -> None:
    if value:
        from gonogo.settings.release import release

        typer.echo(f"gonogo {release()}")
        raise typer.Exit


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


@app.callback()
def root(
    version: bool = typer.Option(
        False, "--version", help="Print the version and exit.", callback=_version, is_eager=True
    ),
) -> None:
    """A go/no-go gauge for numerical kernel tests: does a green test mean anything?

    "manual: PAGE" is a page of the manual, which every server has: /manual/ behind its address.
    """


def fail(problem: BaseException, code: int) -> NoReturn:
    """Say one line on stderr (the whole traceback with GONOGO_LOG_LEVEL=debug) and exit."""
    if os.environ.get("GONOGO_LOG_LEVEL") == "debug":
        traceback.print_exception(problem)
    if problems.json_requested(sys.argv[1:]):
        problems.tell(problem, code)
    else:
        print(f"gonogo: {plain(problems.lines(problem))}", file=sys.stderr)
        _tell_unread_variables()
    raise SystemExit(code)


def _tell_unread_variables() -> None:
    """Name misspelled GONOGO_ variables, which may be why a command failed."""
    import gonogo.settings

    for name, meant in gonogo.settings.unread(os.environ).items():
        if meant:
            print(f"nobody reads {name}; did you mean {meant[0]!r}?", file=sys.stderr)


def run() -> NoReturn:
    """Run the command. A usage error is one line, or with --json a problem document."""
    try:
        code = app(standalone_mode=False, prog_name="gonogo")
    except UsageError as problem:
        code = problem.exit_code
        if not is_help(problem):
            words = in_one_line(problem)
            if problems.json_requested(sys.argv[1:]):
                problems.tell(words, code)
            else:
                print(f"gonogo: {plain(words)}", file=sys.stderr)
    except typer.Abort:
        code = 1
    raise SystemExit(code if isinstance(code, int) else 0)


def _collect_rarely() -> None:
    """Let the garbage collector run seldom, and not at the end.

    Looking at all that imports made took a quarter of the time of a short command, and a tenth of
    a page's, which makes thousands of objects, hardly any in cycles.
    """
    gc.set_threshold(20_000, 20, 20)
    atexit.register(gc.freeze)


def main() -> None:
    """The console script: our own errors become one line and an exit code, never a traceback."""
    private_process.protect()
    _collect_rarely()
    try:
        try:
            run()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # here and not at the end of Python, which prints a traceback
    except SystemExit:
        raise
    except BrokenPipeError:
        sys.stderr.close()
        raise SystemExit(1) from None
    except OSError as problem:  # a full disk, a folder that may not be written
        _drop_output()
        place = "the output" if problem.filename is None else problem.filename
        fail(OSError(f"{place}: {problem.strerror or problem}"), INFRASTRUCTURE)
    except Exception as problem:
        from gonogo.errors import InfrastructureError, JobError

        if isinstance(problem, ModuleNotFoundError):
            problem = extras.missing(problem.name) or problem
        if isinstance(problem, JobError):
            fail(problem, 2)
        if isinstance(problem, InfrastructureError):
            fail(problem, INFRASTRUCTURE)
        if type(problem).__name__ == "SettingsError":
            fail(problem, 2)
        if isinstance(problem, UnicodeEncodeError) and problem.reason == "surrogates not allowed":
            fail(JobError(f"{problem.object!r} isn't UTF-8 text"), 2)
        if words := _of_a_package(problem):
            fail(JobError(words), 2)
        raise


def _drop_output() -> None:
    """Let what is still to be written go nowhere."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _of_a_package(problem: Exception) -> str | None:
    """Return the message of an error while a kernel of another package is judged; else None.

    It may be raised in our code, as where the kernel returns an output under a wrong name.
    """
    from gonogo.errors import in_words
    from gonogo.kernels.registry import KERNELS, loaded

    if not loaded():
        return None
    references = [KERNELS[name].reference for name in loaded()]
    packages = {
        getattr(function, "func", function).__module__.partition(".")[0] for function in references
    }
    frames = traceback.extract_tb(problem.__traceback__)
    package_frames = [
        frame for frame in frames if packages.intersection(Path(frame.filename).parts)
    ]
    where = (
        f", at {package_frames[-1].filename}:{package_frames[-1].lineno}" if package_frames else ""
    )
    return (
        f"the kernel {' or '.join(loaded())}, which GoNoGo doesn't ship, can't be judged: "
        f"{in_words(problem)}{where} (GONOGO_LOG_LEVEL=debug shows the traceback; manual: "
        "own_kernel)"
    )

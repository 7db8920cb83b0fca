"""How the service's processes log: a line an event on standard output, and never an error of its
own.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any, TextIO

import structlog


class Printer:
    """Prints events. What can't be written (a full disk, a closed pipe) is lost: a line of a log
    must end no thread that works.
    """

    def __init__(self, file: TextIO | None = None) -> None:
        self._file = file

    def msg(self, message: str) -> None:
        """Print the line at once."""
        with suppress(OSError, ValueError):  # ValueError: the file was closed
            print(message, file=self._file or sys.stdout, flush=True)

    log = debug = info = warning = warn = error = err = critical = fatal = exception = msg


def configure() -> None:
    """For this process. Tracebacks are plain: with the variables of every frame they would show
    tokens and keys.
    """
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.StackInfoRenderer(),
            structlog.dev.set_exc_info,
            structlog.processors.TimeStamper(fmt="%Y-%m-%d %H:%M:%S", utc=False),
            structlog.dev.ConsoleRenderer(
                colors=sys.stdout.isatty(), exception_formatter=structlog.dev.plain_traceback
            ),
        ],
        logger_factory=_printer,
    )


def _printer(*_names: Any) -> Printer:
    return Printer()

"""Logging of the service's processes: one line per event on standard output.

Logging itself never raises an error.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any, TextIO

import structlog


class Printer:
    """Prints events.

    A line that can't be written (full disk, closed pipe) is dropped: logging must not end a thread.
    """

    def __init__(self, file: TextIO | None = None) -> None:
        self._file = file

    def msg(self, message: str) -> None:
        """Print the line and flush it."""
        with suppress(OSError, ValueError):  # ValueError: the file was closed
            print(message, file=self._file or sys.stdout, flush=True)

    log = debug = info = warning = warn = error = err = critical = fatal = exception = msg


def configure() -> None:
    """Configure logging for this process.

    Tracebacks are plain: with local variables they would show tokens and keys.
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

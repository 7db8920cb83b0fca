"""The service's log: one line per event, no variables in tracebacks, and no error where it can't be
written."""

from __future__ import annotations

import io
import subprocess
import sys

from gonogo_service.kit import logs


class Full(io.StringIO):
    """A file on a full disk."""

    def write(self, text: str) -> int:
        raise OSError(27, "File too large")


def test_what_cannot_be_written_is_lost_and_ends_nothing() -> None:
    logs.Printer(Full()).warning("the database is away")
    closed = io.StringIO()
    closed.close()
    logs.Printer(closed).error("message dropped")


def test_a_process_logs_to_standard_output_without_the_variables_of_its_frames() -> None:
    code = (
        "import structlog; from gonogo_service.kit import logs; logs.configure()\n"
        "log = structlog.get_logger('gonogo.service')\n"
        "def open_it(token): raise RuntimeError('it is broken')\n"
        "try: open_it('gng_' + 'secret')\n"
        "except RuntimeError: log.exception('unforeseen', role='dispatcher')\n"
        "log.info('goes on')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "goes on" in done.stdout, done.stderr
    assert "RuntimeError: it is broken" in done.stdout
    assert "role=dispatcher" in done.stdout
    assert "gng_secret" not in done.stdout

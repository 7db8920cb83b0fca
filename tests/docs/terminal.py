"""A terminal for tests of the documentation: a bash that keeps its folder and variables between
pastes."""

from __future__ import annotations

import os
import re
import select
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

_VOLATILE = (
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "UUID"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?Z?"), "TIME"),
    (re.compile(r"\b\d+(\.\d+)? ?(ms|s|min)\b"), "DURATION"),
    (re.compile(r"(?<![\w.:/])/([\w.+-]+/)+"), "FOLDER/"),
    (re.compile(r"={3,}"), "==="),
    (re.compile(r"  +"), "  "),
)
"""Patterns that differ from one run to the next, and the word that stands for each."""
_WAITING = re.compile(r"waiting for .* it is a hang after DURATION \(--deadline\)")
"""The line about a run that takes some seconds: a loaded machine prints it, an idle one doesn't."""


@dataclass(frozen=True, slots=True)
class Pasted:
    """The output of a paste, and the exit statuses of its commands that failed."""

    output: str
    failures: tuple[int, ...]


class Terminal:
    """A bash in a folder; leaving the context ends it and everything that it started."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.last = Pasted("", ())
        self._folder, self._environment = folder, dict(environment)
        self._scratch = Path(tempfile.mkdtemp(prefix="gonogo-paste-", dir="/tmp"))
        self._process = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=dict(environment),
            start_new_session=True,
        )

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def start(self, text: str) -> None:
        """Paste a program into a second terminal; it runs until this one closes.

        The second one is in the same folder, and knows no variable that was set in the first.
        Nothing waits for the program's end.
        """
        script = self._script(text)
        variables = shlex.join(f"{name}={value}" for name, value in self._environment.items())
        fresh = f"env -i {variables} bash --norc --noprofile {script}"
        folder = shlex.quote(str(self._folder))
        self._send(f"(cd {folder} && exec {fresh}) > {script}.out 2>&1 < /dev/null &\n")

    def paste(self, text: str, timeout_s: float) -> Pasted:
        """Run the text in this shell and return what it printed.

        Raises TimeoutError with the output so far where it takes longer than `timeout_s`.
        """
        script = self._script(text)
        failures, end = script.with_suffix(".failures"), script.with_suffix(".end")
        failures.touch()
        self._send(
            f"trap 'echo $? >> {failures}' ERR\n. {script} > {script}.out 2>&1 < /dev/null\n"
            f"trap - ERR\necho {end}\n"
        )
        try:
            self._read_until(str(end), time.monotonic() + timeout_s)
        except TimeoutError as error:
            raise TimeoutError(f"{error}\n{text}\n{self.output()}") from None
        self.last = Pasted(
            Path(f"{script}.out").read_text(errors="replace"),
            tuple(int(line) for line in failures.read_text().split()),
        )
        return self.last

    def output(self) -> str:
        """Return everything that the pastes of this terminal have printed."""
        scripts = sorted(self._scratch.glob("*.out"), key=lambda path: path.stat().st_mtime)
        return "".join(path.read_text(errors="replace") for path in scripts)

    def close(self) -> None:
        """End the shell and its children: politely, then by force."""
        for sign, patience_s in ((signal.SIGTERM, 15.0), (signal.SIGKILL, 5.0)):
            try:
                os.killpg(self._process.pid, sign)
            except ProcessLookupError:
                break
            deadline = time.monotonic() + patience_s
            while time.monotonic() < deadline and self._group_lives():
                time.sleep(0.02)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def _group_lives(self) -> bool:
        self._process.poll()
        try:
            os.killpg(self._process.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def _script(self, text: str) -> Path:
        handle, name = tempfile.mkstemp(suffix=".sh", dir=self._scratch)
        with os.fdopen(handle, "w") as file:
            file.write(text)
        return Path(name)

    def _send(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text.encode())
        self._process.stdin.flush()

    def _read_until(self, mark: str, deadline: float) -> None:
        assert self._process.stdout is not None
        seen = b""
        while mark.encode() not in seen:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                raise TimeoutError("the block has not ended in time")
            piece = os.read(self._process.stdout.fileno(), 65536)
            if not piece:
                raise TimeoutError("the shell has ended")
            seen += piece


def differences(expected: str, printed: str) -> str:
    """Return the first line of `expected` that `printed` lacks in its place, or "".

    A line of `...` stands for any lines. Times, durations, ids, folders and widths may differ, and
    a slow run may say that it is waited for.
    """
    want, got = _lines(expected), _lines(printed)
    got = [line for line in got if line in want or not _WAITING.fullmatch(line)]
    place = 0
    free = False
    for line in want:
        if line == "...":
            free = True
            continue
        here = next((n for n in range(place, len(got)) if got[n] == line), None) if free else place
        if here is None or here >= len(got) or got[here] != line:
            shown = got[place] if place < len(got) else "(nothing more)"
            return f"expected: {line}\nprinted:  {shown}"
        place, free = here + 1, False
    if place < len(got) and not free:
        return f"expected: (nothing more)\nprinted:  {got[place]}"
    return ""


def _lines(text: str) -> list[str]:
    for pattern, word in _VOLATILE:
        text = pattern.sub(word, text)
    return [line.rstrip() for line in text.strip("\n").splitlines()]

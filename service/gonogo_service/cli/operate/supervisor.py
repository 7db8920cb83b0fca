"""Keep a few child processes alive: sessions of their own, restart with backoff, orderly stop."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gonogo.cli.kit.private_process import DESCRIPTOR, hand_over

RESTARTS: Final = 5
"""This many ends of one child within WINDOW_S are no bad luck any more: the supervisor gives up."""
WINDOW_S: Final = 60.0
FIRST_DELAY_S: Final = 0.2
"""Delay before the first restart; doubled for each further one within the window."""
TICK_S: Final = 0.1
TOTAL_STOP_S: Final = 9.5
MAX_LOG_BYTES: Final = 8 * 2**20
"""A larger log is kept once as `.1` when the child is first started, and begun anew."""


class GaveUp(Exception):
    """A child ended too often; the message names it and shows the end of its log."""


def _ask_for_sigterm() -> None:
    """Ask Linux, in the child, for SIGTERM when the supervisor dies, even by SIGKILL.

    PR_SET_PDEATHSIG is 1. So nothing is left behind.
    """
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


@dataclass
class Child:
    """One process to keep alive.

    `stop_s` is its share of the time to stop; after it the whole process group is killed.
    """

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    stop_s: float
    pass_fds: tuple[int, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict)
    """Settings that it gets through a pipe: an environment can be read in /proc."""
    process: subprocess.Popen[bytes] | None = None
    ends: deque[float] = field(default_factory=lambda: deque(maxlen=RESTARTS))
    due: float = 0.0

    def start(self) -> None:
        """Start the process in a session of its own.

        A Ctrl-C on the terminal then reaches the supervisor only, which stops the others in order.
        """
        if not self.ends and self.log.exists() and self.log.stat().st_size > MAX_LOG_BYTES:
            self.log.replace(self.log.with_suffix(".log.1"))
        pipe = hand_over(self.secrets)
        try:
            with self.log.open("ab") as out:
                self.process = subprocess.Popen(
                    self.command,
                    env=dict(self.environment) | ({DESCRIPTOR: str(pipe)} if self.secrets else {}),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                    pass_fds=(*self.pass_fds, *([pipe] if self.secrets else [])),
                    preexec_fn=_ask_for_sigterm if sys.platform == "linux" else None,
                )
        finally:
            os.close(pipe)

    def running(self) -> bool:
        """Return whether its process lives."""
        return self.process is not None and self.process.poll() is None

    def stop(self, seconds: float) -> None:
        """Ask the process to end, and kill its group after these seconds."""
        if self.running() and self.process is not None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(max(0.1, min(self.stop_s, seconds)))
        self.kill()

    def kill(self) -> None:
        """Kill its process group: whatever it started goes with it."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def restart_if_due(self) -> str | None:
        """Start it again where it ended and its delay is over; return in words that it ended.

        Raises GaveUp.
        """
        now = time.monotonic()
        if self.process is None:
            if self.ends and now >= self.due:
                self.start()
            return None
        code = self.process.poll()
        if code is None:
            return None
        self.kill()  # what it may have left behind in its group
        self.process = None
        self.ends.append(now)
        recent = sum(now - end < WINDOW_S for end in self.ends)
        if recent >= RESTARTS:
            tail = self.log.read_bytes()[-16384:].decode(errors="replace").splitlines()[-15:]
            raise GaveUp(
                f"{self.name} ended {RESTARTS} times within {WINDOW_S:.0f} s, last with {code}; "
                f"its log {self.log} ends:\n" + "\n".join(tail)
            )
        self.due = now + FIRST_DELAY_S * 2 ** (recent - 1)
        return f"{self.name} ended with {code}"


class Supervisor:
    """Children that run until a stop is requested; they stop in the order of `stop_order`."""

    def __init__(self, children: Sequence[Child], stop_order: Sequence[str]) -> None:
        self.children = {child.name: child for child in children}
        self.stop_order = stop_order
        self.stopping = False

    def request_stop(self, *_: object) -> None:
        """Signal handler: end `run` at its next tick."""
        self.stopping = True

    def start(self, name: str) -> None:
        """Start one child for the first time."""
        self.children[name].start()

    def check(self) -> list[str]:
        """Restart children that are due; return those that ended since the last call, in words.

        Raises GaveUp.
        """
        ended = [child.restart_if_due() for child in self.children.values()]
        return [message for message in ended if message is not None]

    def run(self, say: Callable[[str], object], tick: Callable[[], bool] | None = None) -> None:
        """Watch the children until `request_stop` is called or `tick` is true. Raises GaveUp."""
        while not self.stopping:
            for message in self.check():
                say(f"{message}; starting it again")
            if tick is not None and tick():
                return
            time.sleep(TICK_S)

    def stop(self) -> None:
        """Stop all children in order: SIGTERM, then SIGKILL to the group, within TOTAL_STOP_S."""
        deadline = time.monotonic() + TOTAL_STOP_S
        for name in self.stop_order:
            self.children[name].stop(deadline - time.monotonic())

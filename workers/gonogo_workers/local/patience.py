"""How long a command waits for a child's answer, and what it says meanwhile."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gonogo.spec import hang_limits

TELL_AFTER_S = 5.0
"""Whoever sees nothing for longer takes the command for broken."""


@dataclass(frozen=True)
class Patience:
    """The limits of a command's runs.

    deadline_s: what the user gave, which is taken as it is; None: it follows the run's size, and is
    at most most_s. tell: gets a sentence about a run that takes long, from another thread.
    """

    deadline_s: float | None = None
    most_s: float = math.inf
    tell: Callable[[str], None] | None = None

    def limit_s(self, executor: str, elements: int | None, *, is_first: bool) -> float:
        """Return after how many seconds a run is a hang.

        elements: those of its shape; None for tests that exist already. is_first: in its child.
        """
        if self.deadline_s is not None:
            return self.deadline_s
        guess_s = None if elements is None else hang_limits.guess_s(executor, elements)
        return hang_limits.of(guess_s, self.most_s)[int(is_first)]

    @contextmanager
    def telling(self, run: str, limit_s: float) -> Iterator[None]:
        """Say after a while that this run, in words, isn't over, and when it is a hang."""
        if self.tell is None or limit_s <= TELL_AFTER_S:
            yield
            return
        words = f"waiting for {run}: it is a hang after {limit_s:g} s (--deadline)"
        timer = threading.Timer(TELL_AFTER_S, self.tell, [words])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

"""How a child is lost in mid chunk, and what is still to be said about the seed that it was lost
over.
"""

from __future__ import annotations

from dataclasses import dataclass

from gonogo_workers.messages.chunk import Work
from gonogo_workers.messages.rows import Place


@dataclass(frozen=True)
class Hang:
    """A seed without an answer: its row is still to be made, by `Pipeline.fail_hung`."""

    work: Work
    place: Place
    message: str
    log_tail: str


class ChildLost(Exception):
    """The child crashed or was killed for hanging; the seeds left need a fresh one."""

    def __init__(self, message: str, hang: Hang | None = None) -> None:
        super().__init__(message)
        self.hang = hang

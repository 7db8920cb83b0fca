"""The loss of a child in the middle of a chunk, and the seed that it was lost over."""

from __future__ import annotations

from dataclasses import dataclass

from gonogo_workers.messages.chunk import Work
from gonogo_workers.messages.rows import Place


@dataclass(frozen=True)
class Hang:
    """A seed without an answer: `Pipeline.fail_hung` adds its row later."""

    work: Work
    place: Place
    message: str
    log_tail: str


class ChildLost(Exception):
    """The child crashed or was killed for hanging; the remaining seeds need a fresh one."""

    def __init__(self, message: str, hang: Hang | None = None) -> None:
        super().__init__(message)
        self.hang = hang

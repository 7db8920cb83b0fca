"""The error of what can't be traced: where it stands, what is wrong, what to write instead."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable
from types import FrameType

from gonogo.errors import JobError

_NOT_KERNELS = ("gonogo.graph.", "numpy.")
"""Beginnings of modules whose lines and variables are not the kernel's."""


class TraceError(JobError, ValueError):
    """A function can't be traced; the message has the file, the line and the remedy."""


def refusal(problem: str, instead: str = "") -> TraceError:
    """Return an error about the kernel's line that runs now."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_kernels(frame):
        frame = frame.f_back
    place = f"{frame.f_code.co_filename}:{frame.f_lineno}: " if frame is not None else ""
    return TraceError(f"{place}{problem}{f'; {instead}' if instead else ''}")


def is_kernels(frame: FrameType) -> bool:
    """Return whether a frame belongs to a kernel or its helpers: not to NumPy or to tracing."""
    module = frame.f_globals.get("__name__", "")
    return not f"{module}.".startswith(_NOT_KERNELS)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question that names what is close to an unknown name, or what to do without."""
    known = sorted(known)
    parts = [other for other in known if other in name or (name in other and len(name) > 2)]
    close = list(dict.fromkeys([*difflib.get_close_matches(name, known, 3, 0.8), *parts]))[:3]
    if close:
        return f"did you mean {' or '.join(close)}?"
    return "write it with sums, products, exp and other operations of gonogo.graph.OPERATIONS"

"""The error of a file that a command's argument names, and that can't be read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gonogo.errors import FieldError


@contextmanager
def reading(path: Path, argument: str = "FILE") -> Iterator[None]:
    """Raise FieldError about the argument where the block can't read its file."""
    try:
        yield
    except OSError as problem:
        raise FieldError(argument, str(path), f"can't be read: {problem.strerror}") from problem

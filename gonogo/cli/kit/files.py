"""The files that a command's arguments name: read, or written where they are complete."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO

from gonogo.errors import FieldError


@contextmanager
def destination(path: Path | None, *, complete: bool = False) -> Iterator[BinaryIO]:
    """Open a file for writing, or standard output for None.

    A file gets its name when it is complete; an error leaves what was there before. With
    `complete`, standard output, pipes and devices get all of it at the end, or nothing. Raises
    FieldError when the file can't be written.
    """
    if path is None:
        with _stream(sys.stdout.buffer, complete) as file:
            yield file
        return
    try:
        target = path.resolve()
        if target.exists() and not target.is_file():  # a pipe or a device: it can't be replaced
            with target.open("wb") as device, _stream(device, complete) as file:
                yield file
            return
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            with part.open("xb") as file:
                yield file
            if target.exists():
                shutil.copymode(target, part)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    except OSError as problem:
        raise FieldError(
            "--output", str(path), f"can't be written: {problem.strerror or problem}"
        ) from problem


@contextmanager
def _stream(stream: BinaryIO, complete: bool) -> Iterator[BinaryIO]:
    if not complete:
        yield stream
    else:
        with TemporaryFile() as file:
            yield file
            file.seek(0)
            shutil.copyfileobj(file, stream)
    stream.flush()


@contextmanager
def reading(path: Path, argument: str = "FILE") -> Iterator[None]:
    """Raise FieldError about the argument where the block can't read its file."""
    try:
        yield
    except OSError as problem:
        raise FieldError(argument, str(path), f"can't be read: {problem.strerror}") from problem

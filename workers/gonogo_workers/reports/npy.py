"""Read .npy files of strangers: the header first, then only as much as its reader expects."""

from __future__ import annotations

import os
import warnings
from math import prod
from types import SimpleNamespace
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

MAX_HEADER = 10_000
"""Characters; NumPy evaluates a header as a Python literal, and its own take a few hundred."""
VERSIONS = ((1, 0), (2, 0), (3, 0))


def header(file: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    """Return the shape, whether its order is Fortran's, and the dtype that a header states.

    Raises ValueError, without quoting the file, which may be any file of this host. The array may
    be shorter than its header says.
    """
    try:
        version = np.lib.format.read_magic(file)
    except ValueError:
        raise ValueError("is not a .npy file") from None
    if version not in VERSIONS:
        known = ", ".join(f"{major}.{minor}" for major, minor in VERSIONS)
        raise ValueError(f"is a .npy file of version {version[0]}.{version[1]} (allowed: {known})")
    read = (
        np.lib.format.read_array_header_1_0
        if version == (1, 0)
        else np.lib.format.read_array_header_2_0
    )

    def few(size: int) -> bytes:
        if size > MAX_HEADER:  # NumPy would read all of it, which may be 4 GiB, to say so
            raise ValueError(size)
        return file.read(size)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            limited: Any = SimpleNamespace(read=few)
            shape, fortran_order, dtype = read(limited, max_header_size=MAX_HEADER)
    except Exception:  # NumPy evaluates the header with Python's parser, which raises anything
        raise ValueError("has no header of a .npy file") from None
    if any(length < 0 or isinstance(length, bool) for length in shape):
        raise ValueError("has a shape with negative dimensions")
    return shape, fortran_order, dtype


def check_floats(dtype: np.dtype[np.generic]) -> None:
    """Raise ValueError unless a dtype is float16, float32 or float64."""
    if dtype.kind != "f" or dtype.itemsize > 8:
        raise ValueError(f"holds {str(dtype)[:60]}, not floats (float16, float32, float64)")


def body(
    file: BinaryIO, shape: tuple[int, ...], fortran_order: bool, dtype: np.dtype[np.generic]
) -> NDArray[np.floating]:
    """Return the array behind a header whose shape the caller has checked.

    Raises ValueError where the file is shorter: a lying header costs no memory.
    """
    check_floats(dtype)
    size = prod(shape) * dtype.itemsize
    status = os.fstat(file.fileno())
    if status.st_size and status.st_size - file.tell() < size:
        raise ValueError(
            f"is cut off: its header says {size} bytes, and {status.st_size - file.tell()} follow"
        )
    content = file.read(size)
    if len(content) < size:
        raise ValueError(f"is cut off: its header says {size} bytes, and {len(content)} follow")
    array = np.frombuffer(content, dtype)
    return array.reshape(shape, order="F" if fortran_order else "C")

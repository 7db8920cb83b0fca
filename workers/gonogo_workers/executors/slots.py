"""Tensor files between the worker and its child, reused for seed after seed.

The worker makes and sizes them, the child maps them. The worker uses pread and pwrite and never
maps a file: a child that truncates a mapped file would kill the worker with SIGBUS. Space is
allocated when the files are made, so a full disk is an error here and not a crash of the kernel.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gonogo.errors import InfrastructureError
from gonogo_workers.executors.base import Arrays, FloatArray, KernelError
from gonogo_workers.executors.child_user import SHARED_FILE

Shapes = Mapping[str, tuple[int, ...]]


def npy_header(shape: tuple[int, ...], dtype: str = "<f4") -> bytes:
    """Return the header of a C-order .npy file of a little-endian dtype with four bytes.

    NumPy pads it to a multiple of 64 bytes.
    """
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        buffer, {"descr": dtype, "fortran_order": False, "shape": shape}
    )
    return buffer.getvalue()


class Descriptor:
    """An open file that is closed when the last thread that uses it drops it.

    A descriptor closed too early could be another file's.
    """

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        os.close(self.number)


@dataclass
class TensorFile:
    """One .npy file of fixed shape, open in the worker."""

    path: Path
    shape: tuple[int, ...]
    header: bytes
    file: Descriptor

    @classmethod
    def create(cls, path: Path, shape: tuple[int, ...]) -> TensorFile:
        """Make the file with all its space. Raises InfrastructureError when the disk is full."""
        header = npy_header(shape)
        size = len(header) + 4 * int(np.prod(shape, dtype=np.int64))
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            file = Descriptor(fd)
            os.fchmod(fd, SHARED_FILE)  # the folder decides who gets here
            os.posix_fallocate(fd, 0, size)
            os.pwrite(fd, header, 0)
        except OSError as problem:
            path.unlink(missing_ok=True)
            raise InfrastructureError(
                f"no room for a tensor of {size} bytes in {path.parent}: {problem.strerror}"
            ) from problem
        return cls(path, shape, header, file)

    def write(self, array: FloatArray) -> None:
        """Store the array (same shape, float32 or int32, C order)."""
        if array.dtype == np.int32:
            os.pwrite(self.file.number, npy_header(self.shape, "<i4"), 0)
        rest, offset = array.reshape(-1).view(np.uint8).data, len(self.header)
        while rest:
            done = os.pwrite(self.file.number, rest, offset)
            rest, offset = rest[done:], offset + done

    def read(self) -> FloatArray:
        """Return a copy of the stored array.

        Raises KernelError when the child truncated or overwrote the file.
        """
        array = np.empty(self.shape, np.float32)
        header = bytearray(len(self.header))
        rest, offset = array.reshape(-1).view(np.uint8).data, len(header)
        whole = os.preadv(self.file.number, [header], 0) == len(header)
        while rest and whole:
            done = os.preadv(self.file.number, [rest], offset)
            rest, offset, whole = rest[done:], offset + done, done > 0
        if not whole or header != self.header:
            raise KernelError(f"the file of output {self.path.stem.split('-', 1)[1]} is damaged")
        return array

    def delete(self) -> None:
        """Delete the file; its space is free once the child has gone, too."""
        self.path.unlink(missing_ok=True)


class Slot:
    """The files of one seed under way: every input and every output of one test."""

    def __init__(self, folder: Path, prefix: str, inputs: Shapes, outputs: Shapes) -> None:
        self.folder = folder
        self.inputs: dict[str, TensorFile] = {}
        self.outputs: dict[str, TensorFile] = {}
        try:
            for files, shapes in ((self.inputs, inputs), (self.outputs, outputs)):
                for name, shape in shapes.items():
                    files[name] = TensorFile.create(folder / f"{prefix}-{name}.npy", shape)
        except InfrastructureError:
            self.delete()
            raise

    def write(self, arrays: Arrays) -> None:
        """Store the inputs of a seed."""
        for name, file in self.inputs.items():
            file.write(arrays[name])

    def read(self) -> dict[str, FloatArray]:
        """Return the outputs that the child stored. Raises KernelError when a file is damaged."""
        return {name: file.read() for name, file in self.outputs.items()}

    def request(self) -> dict[str, Any]:
        """Return the part of a `run` request that says where the tensors are."""
        return {
            "inputs": {name: str(file.path) for name, file in self.inputs.items()},
            "outputs": {
                name: {"file": str(file.path), "shape": list(file.shape)}
                for name, file in self.outputs.items()
            },
        }

    def delete(self) -> None:
        """Delete the files."""
        for file in (*self.inputs.values(), *self.outputs.values()):
            file.delete()

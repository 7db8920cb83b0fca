"""Arrays that a test handed over: read from the files that its process left, checked, judged.

The files come from another program and may hold anything. They are read, not mapped (a file
truncated under a map would kill the worker), never unpickled, and only as far as they are what the
test says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo import fields as reading
from gonogo.errors import GonogoError, JobError, brief
from gonogo.judging.judging import judge
from gonogo.judging.stored_tensors import Tensors, given_inputs, shaped
from gonogo.spec.arithmetic_names import canonical
from gonogo.spec.test_spec import TestSpec
from gonogo_workers.reports import npy
from gonogo_workers.reports.exchange import regular_file
from gonogo_workers.reports.rows import JudgedDump, Report

MAX_BYTES = 2**32
"""The limit for all arrays of one iteration: they wait in memory to be judged."""
MAX_DUMPS = 1000
MAX_NAME_CHARS = 100


@dataclass(frozen=True)
class Dump:
    """The arrays of one run of a kernel, in memory; or the reason why they could not be read."""

    test: TestSpec | None
    tensors: Tensors
    raw: Tensors
    arithmetic: str | None
    name: str = ""
    """A name that distinguishes it from others of the same test."""
    problem: str = ""

    @property
    def nbytes(self) -> int:
        """The size of the arrays in memory."""
        return sum(array.nbytes for array in (*self.tensors.values(), *self.raw.values()))


def read(data: Mapping[str, Any], *, max_elements: int, left: int = MAX_BYTES) -> Dump:
    """Read the arrays of a report: {"kernel", "fields", "tensors", "raw", "arithmetic"}.

    Never raises: the result has the problem. `left`: the bytes of arrays that this iteration may
    still have.
    """
    test, name = None, str(data.get("name") or "")[:MAX_NAME_CHARS]
    try:
        given = {
            "kernel": data.get("kernel"),
            **reading.mapping(data.get("fields") or {}, "fields"),
        }
        test = TestSpec.parse(given, max_elements=max_elements, path="arrays")
        arithmetic = canonical(data.get("arithmetic"))
        tensors = _load_all(test, data.get("tensors") or {}, "tensors")
        raw = _load_all(test, data.get("raw") or {}, "raw")
        dump = Dump(test, tensors, raw, arithmetic, name)
        if dump.nbytes > left:
            raise JobError(
                f"the arrays of this iteration are too large (at most {MAX_BYTES} bytes in all)"
            )
        return dump
    except (GonogoError, OSError, ValueError, EOFError, MemoryError, OverflowError) as problem:
        return Dump(
            test,
            {},
            {},
            None,
            name,
            f"the arrays{f' of {name}' if name else ''} can't be judged: {problem}",
        )


def read_all(reports: Sequence[Report], max_elements: int) -> dict[str, list[Dump]]:
    """Return the arrays of every test that handed some over, by its name."""
    left, number = MAX_BYTES, 0
    by_test: dict[str, list[Dump]] = {}
    for report in reports:
        for entry in report.dumps:
            number += 1
            if number > MAX_DUMPS:
                problem = f"more than {MAX_DUMPS} arrays of kernels in one iteration"
                by_test.setdefault(report.name, []).append(Dump(None, {}, {}, None, "", problem))
                break
            dump = read(entry, max_elements=max_elements, left=left)
            left -= dump.nbytes
            by_test.setdefault(report.name, []).append(dump)
    return by_test


def judged(dump: Dump, label: str, arithmetic: str | None) -> JudgedDump:
    """Judge the arrays against the float64 function of the kernel's inputs.

    `arithmetic`: the one that the build declares, else the dump's is used. Never raises for wrong
    arrays: the result has the problem.
    """
    test = dump.test
    if dump.problem or test is None:
        return JudgedDump(test, None, dump.problem, label)
    try:
        inputs = {name: array for name, array in dump.tensors.items() if name not in test.outputs}
        outputs = {
            name: shaped(test, name, dump.tensors[name])
            for name in test.outputs
            if name in dump.tensors
        }
        if not outputs:
            raise JobError(f"there is no output: hand over some of {', '.join(test.outputs)}")
        raw, given = given_inputs(test, inputs, dump.raw)
        with np.errstate(all="ignore"):  # NaN and Inf are judged, not warned of
            judgement = judge(
                test,
                raw,
                given,
                outputs,
                arithmetic=arithmetic or dump.arithmetic,
                produced=tuple(outputs),
            )
    except GonogoError as problem:
        message = f"the arrays{f' of {dump.name}' if dump.name else ''} can't be judged: {problem}"
        return JudgedDump(test, None, message, label)
    return JudgedDump(test, judgement, "", label, given, outputs)


def _load_all(test: TestSpec, places: object, path: str) -> Tensors:
    named = reading.mapping(places, path)
    reading.known(
        named, (*test.input_names, *test.outputs) if path == "tensors" else test.input_names, path
    )
    return {name: load(str(place), most=prod(test.shape_of(name))) for name, place in named.items()}


def load(place: str, *, most: int) -> NDArray[Any]:
    """Return the float array of a .npy file, with at most `most` elements.

    Raises OSError or ValueError for any other file.
    """
    with open(place, "rb", opener=regular_file) as file:
        try:
            shape, fortran_order, dtype = npy.header(file)
            npy.check_floats(dtype)
            if prod(shape) > most:
                raise ValueError(
                    f"has shape {brief(list(shape))}: {prod(shape)} elements, "
                    f"where the test's shape has {most}"
                )
            return npy.body(file, shape, fortran_order, dtype)
        except ValueError as problem:
            raise ValueError(f"{Path(place).name} {problem}") from None

"""Tensors that another program stored, in the domain's shapes.

They are checked: a kernel must be able to have been given them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.errors import FieldError, JobError
from gonogo.judging.inputs import given_statistics, quantise
from gonogo.spec.test_spec import TestSpec

Tensors = dict[str, NDArray[Any]]


def shaped(test: TestSpec, name: str, array: NDArray[Any]) -> NDArray[Any]:
    """Return the tensor in its flat shape (TestSpec.flat_shape_of).

    Dimensions of 1 may be anywhere ([1, 1, 1, N] of a gamma), and rows may be flat. Raises
    FieldError for another shape or type.
    """
    shape, flat = test.shape_of(name), test.flat_shape_of(name)
    bound = test.bound_of(name)
    if array.dtype.kind not in ("f" if bound is None else "fiu"):
        raise FieldError(
            name, str(array.dtype), "must be a float array", limit="float16, float32, float64"
        )
    if _squeezed(array.shape) not in (_squeezed(shape), _squeezed(flat)):
        raise FieldError(name, list(array.shape), "has a wrong shape", limit=list(shape))
    if bound is not None:
        numbers = array.astype("int64").reshape(flat)
        if (numbers != array.reshape(flat)).any() or not ((numbers >= 0) & (numbers < bound)).all():
            raise FieldError(name, "its values", "must be whole numbers", limit=f"0 to {bound - 1}")
        return numbers.astype("int32")
    double = name in test.input_names and array.dtype.itemsize > 4
    return array.astype("float64" if double else "float32", order="C").reshape(flat)


def given_inputs(
    test: TestSpec, tensors: Mapping[str, NDArray[Any]], raw: Mapping[str, NDArray[Any]]
) -> tuple[Tensors, Tensors]:
    """Return (raw, given) for `gonogo.judging.judging.judge`, from stored inputs.

    `tensors` are what the kernel was given: values that the input format can represent. `raw` are
    inputs before quantization. An input that is only there is rounded to its format, and tolerances
    compare with it. Raises FieldError for a value that no kernel can have been given, JobError for
    an input that is missing.
    """
    unknown = [name for name in (*tensors, *raw) if name not in (*test.input_names, *test.outputs)]
    if unknown:
        allowed = ", ".join((*test.input_names, *test.outputs))
        raise FieldError(
            unknown[0], unknown[0], f"isn't a tensor of {test.kernel}", limit=f"one of {allowed}"
        )
    exact = {
        name: shaped(test, name, tensors[name]) for name in test.input_names if name in tensors
    }
    loose = {name: shaped(test, name, raw[name]) for name in test.input_names if name in raw}
    first = test.input_names[0]
    if first in loose and not {"mean", "rstd"} & set(loose):
        loose = given_statistics(test, loose[first]) | loose
    if missing := [name for name in test.input_names if name not in exact and name not in loose]:
        raise JobError(
            f"{', '.join(missing)} missing: {test.kernel} needs {', '.join(test.input_names)}"
        )
    inputs = loose | exact
    given: Tensors = dict(quantise(test, inputs))
    for name in exact:
        differing = (given[name] != exact[name]) & ~np.isnan(exact[name])
        if differing.any():
            place = tuple(int(index) for index in np.argwhere(differing)[0])
            reason = (
                f"isn't a {test.numerics.format_of(name)} value: no kernel was given it; "
                "pass it as raw, or see numerics.input"
            )
            raise FieldError(f"{name}{list(place)}", float(exact[name][place]), reason)
    return {**given, **loose}, given


def _squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(length for length in shape if length != 1)

"""A call of a comparison function: its two sides, the gate, and whether it is green."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Number
from types import BuiltinFunctionType
from typing import Any

from gonogo.closeness import Gate
from gonogo.public import dropin, tensors
from gonogo.public.tensors import Tensor

EXPECTED_FIRST = ("expected", "golden", "desired", "ref")
"""How a first parameter's name begins where it is the expected side, as in ttnn's functions."""

MAX_VALUES = 1 << 26
"""Whole numbers are read as float64: larger arrays could take the memory that a test needs."""


class NotRead(Exception):
    """A call that is not captured; the message says what stands in the way."""


@dataclass(frozen=True)
class Side:
    """A pair of tensors. `is_same`: both are the same memory."""

    label: str
    actual: Tensor
    expected: Tensor
    is_same: bool


@dataclass(frozen=True)
class Call:
    """A call that was read: the name of its function, its gate and its pairs of tensors."""

    function: str
    gate: Gate
    pairs: list[Side]


def is_green(result: object) -> bool:
    """Return whether a comparison held. Raises NotRead where its result doesn't say.

    result: what the function returned, or its AssertionError. ttnn's functions return (bool, text).
    """
    if isinstance(result, AssertionError):
        return False
    if isinstance(result, tuple) and result:
        result = result[0]
    if result is not None and type(result).__name__ not in ("bool", "bool_"):
        raise NotRead(f"result of {type(result).__name__}")
    return result is None or bool(result)


def read_call(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Call:
    """Read a call. Raises NotRead, and whatever its arrays or gate raise."""
    is_builtin = type(function) is BuiltinFunctionType
    bound = inspect.signature(_torch_allclose if is_builtin else function).bind(*args, **kwargs)
    bound.apply_defaults()
    (first, actual), (_, expected) = list(bound.arguments.items())[:2]
    if first.startswith(EXPECTED_FIRST):
        actual, expected = expected, actual
    pairs = [_read_pair(*pair) for pair in dropin.tensor_pairs(actual, expected, "actual")]
    comparators = ("rtol", "atol", "pcc", "equal_nan")
    given = {name: bound.arguments.get(name) for name in comparators}
    gate = Gate(**{name: value for name, value in given.items() if value is not None})
    if not gate.declared and str(function.__module__).startswith("torch."):
        read = [(pair.label, pair.actual, pair.expected) for pair in pairs]
        gate = dropin.default_gate(gate, read)
    return Call(function.__name__, gate, pairs)


def _torch_allclose(
    input: Any, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> None:
    """Have the signature of torch.allclose, which Python can't read."""


def _read_pair(label: str, actual: Any, expected: Any) -> Side:
    for side in (actual, expected):
        _check_readable(side)
    is_same = hasattr(actual, "shape") and not isinstance(actual, Number)
    is_same = is_same and (actual is expected or _view(actual) == _view(expected) is not None)
    read = tensors.read(actual, label)
    return Side(label, read, tensors.read(expected, f"the expected {label}"), is_same)


def _check_readable(value: Any) -> None:
    """Raise NotRead for a value that can't be read unseen: a subclass, or one with __array__."""
    kind, torch = type(value), sys.modules.get("torch")
    if torch is not None and kind in (torch.Tensor, torch.nn.Parameter):
        modes = torch.overrides._get_current_function_mode_stack()
        if (
            any(type(mode).__name__ != "DeviceContext" for mode in modes)
            or torch._C._len_torch_dispatch_stack()
            or torch.autograd._profiler_enabled()
        ):
            raise NotRead("tensor under a mode or profiler of torch, which would see more calls")
    elif isinstance(value, list | tuple):
        for item in value:
            _check_readable(item)
    elif not (
        isinstance(value, Number)
        or tensors.is_ttnn(value)
        or (kind.__module__.startswith(("numpy", "jax")) and kind.__name__ != "MaskedArray")
    ):
        raise NotRead(f"{kind.__module__}.{kind.__name__}")
    if math.prod(getattr(value, "shape", ())) > MAX_VALUES:
        raise NotRead(f"more than {MAX_VALUES:,} values")


def _view(value: Any) -> tuple[Any, ...] | None:
    """Return address, shape and strides of an array; None of one without an address here."""
    if hasattr(value, "data_ptr"):
        return value.data_ptr(), value.shape, value.stride()
    interface = getattr(value, "__array_interface__", None)
    return interface and (interface["data"][0], value.shape, value.strides)

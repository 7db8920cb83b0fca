"""A call of a comparison function: its two sides, the gate, and whether it is green."""

from __future__ import annotations

import inspect
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
"""How the name of a first parameter begins that is the expected side: ttnn's functions."""
COMPARATORS = ("rtol", "atol", "pcc", "equal_nan")


class NotRead(Exception):
    """The sides of a call are nothing that is captured; the message says what they are."""


@dataclass(frozen=True)
class Side:
    """A pair of tensors of a call.

    Attributes:
        label: "actual", or a name or place in a mapping or sequence.
        is_same: whether both are the same memory.
    """

    label: str
    actual: Tensor
    expected: Tensor
    is_same: bool


@dataclass(frozen=True)
class Call:
    """A call that was read."""

    function: str
    gate: Gate
    pairs: list[Side]

    @property
    def has_pcc_only(self) -> bool:
        """Return whether the gate is Pearson's correlation alone."""
        return self.gate.pcc is not None and self.gate.allclose is None


def is_green(result: object) -> bool | None:
    """Return whether a comparison held; None where its result doesn't say.

    result: what the function returned, or its AssertionError. ttnn's functions return (bool, text).
    """
    if isinstance(result, AssertionError):
        return False
    if isinstance(result, tuple) and result:
        result = result[0]
    if result is None:
        return True
    return bool(result) if type(result).__name__ in ("bool", "bool_") else None


def read_call(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Call:
    """Read a call.

    Raises NotRead, and whatever the arrays or a gate of other types raise.
    """
    signature = inspect.signature(
        _torch_allclose if type(function) is BuiltinFunctionType else function
    )
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    arguments = bound.arguments
    (first, actual), (_, expected) = list(arguments.items())[:2]
    if first.startswith(EXPECTED_FIRST):
        actual, expected = expected, actual
    pairs = [_read_pair(*pair) for pair in dropin.tensor_pairs(actual, expected, "actual")]
    given = {name: arguments[name] for name in COMPARATORS if arguments.get(name) is not None}
    gate = Gate(**given)
    if not gate.declared:
        read = [(pair.label, pair.actual, pair.expected) for pair in pairs]
        gate = dropin.default_gate(gate, read)
    return Call(function.__name__, gate, pairs)


def _torch_allclose(
    input: Any, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> None:
    """Have the signature of torch.allclose, which Python can't read."""


def _read_pair(label: str, actual: Any, expected: Any) -> Side:
    for side in (actual, expected):
        if not _is_readable(side):
            raise NotRead(f"{type(side).__module__}.{type(side).__name__}")
    return Side(
        label,
        tensors.read(actual, label),
        tensors.read(expected, f"the expected {label}"),
        _is_same_memory(actual, expected),
    )


def _is_readable(value: Any) -> bool:
    """Return whether reading a value runs no code of the test: no subclass, no own __array__."""
    kind = type(value)
    if kind.__module__.partition(".")[0] in ("numpy", "jax", "jaxlib", "ml_dtypes"):
        return kind.__name__ != "MaskedArray"
    if isinstance(value, list | tuple):
        return all(map(_is_readable, value))
    if tensors.is_ttnn(value) or isinstance(value, Number):
        return True
    torch = sys.modules.get("torch")
    return torch is not None and kind in (torch.Tensor, torch.nn.Parameter)


def _is_same_memory(actual: Any, expected: Any) -> bool:
    """Return whether two arrays are one: the same object, or the same view of the same memory."""
    if not hasattr(actual, "shape") or isinstance(actual, Number):
        return False
    if actual is expected:
        return True
    views = [_view(side) for side in (actual, expected)]
    return views[0] is not None and views[0] == views[1]


def _view(value: Any) -> tuple[Any, ...] | None:
    """Return address, shape and strides; None of what has no address here."""
    if hasattr(value, "data_ptr"):
        return value.data_ptr(), value.shape, value.stride()
    interface = getattr(value, "__array_interface__", None)
    return interface and (interface["data"][0], value.shape, value.strides)

"""The table of operations: each one's value, slopes, rounding, family and unit, in one place.

Tracing writes other spellings with these (see functions), so that interpreters meet few. Sums, max,
argmax and their kin keep the axes they reduce, with size 1.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from gonogo.graph import special

Array = NDArray[Any]
Kind = Literal["float", "int", "bool"]
Shape = tuple[int, ...]
Family = Literal["source", "elementwise", "sum", "product", "scan", "select", "view"]
Unit = Literal["fpu", "sfpu", "reduce", "move"]
Slopes = Callable[[Sequence[Array], Array, Mapping[str, Any]], Sequence[Any]]

DTYPES: Mapping[Kind, type] = {"float": np.float64, "int": np.int64, "bool": np.bool_}
"""How interpreters hold each kind."""
FUNCTION, HARD, ROUGH = 2.0, 4.0, 6.0
"""Half steps of fp32 by which right functions (exp, tanh), hard ones (pow, erfc), and erf are off:
torch approximates erf by a polynomial on a CPU, up to 18 half steps off near 1."""


@dataclass(frozen=True)
class Operation:
    """One operation that a graph may have.

    Attributes:
        name: what nodes call it: NumPy's own name, where NumPy has it.
        value: the result from the arguments' arrays and the node's attributes.
        family: how errors go through it. "source": no arguments. "elementwise": by slopes. "sum":
            one result per group of elements. "product": sums of products. "scan": cumulative sums.
            "select": some elements, chosen by size. "view": elements moved, by no one's value.
        unit: the unit of a Tensix core that runs it.
        half_steps: the error of a right kernel's operation in half steps of fp32; 0: none.
        slopes: d result / d each argument, of elementwise operations.
        discontinuous: whether a small error of an argument can become a large one.
        kind: the result's kind, where it isn't the one that NumPy gives.
    """

    name: str
    value: Callable[..., Any]
    family: Family
    unit: Unit
    half_steps: float = 0.0
    slopes: Slopes | None = None
    discontinuous: bool = False
    kind: Kind | None = None


def encode_constant(value: Any) -> dict[str, Any]:
    """Return the attributes of a constant or parameter: a finite number, or an array's bytes."""
    array = np.asarray(value)
    kind = kind_of_dtype(array.dtype)
    if array.ndim == 0 and np.isfinite(array):
        return {"value": array.astype(DTYPES[kind]).item()}
    array = array.astype(np.dtype(DTYPES[kind]).newbyteorder("<"))
    text = base64.b64encode(array.tobytes()).decode("ascii")
    return {"bytes": text, "dtype": array.dtype.str, "shape": array.shape}


def decode_constant(
    value: float | None = None, bytes: str = "", dtype: str = "", shape: Shape = ()
) -> Array:
    """Return the array of a constant from its attributes."""
    if value is not None:
        return np.asarray(value)
    flat = np.frombuffer(base64.b64decode(bytes), dtype)
    return flat.astype(flat.dtype.newbyteorder("=")).reshape(shape)


def kind_of_dtype(dtype: np.dtype[Any]) -> Kind:
    """Return the kind of a NumPy type; bfloat16 and other small floats are floats."""
    if dtype.kind == "f" or "float" in dtype.name:
        return "float"
    if dtype.kind not in "iub":
        raise TypeError(f"{dtype} is no type of floats, ints or bools")
    return "bool" if dtype.kind == "b" else "int"


def hollow(shape: Shape) -> Array:
    """Return an array of elements without bytes: it has a shape, and needs no memory."""
    return np.broadcast_to(np.empty((), np.dtype([])), shape)


def result_shape(operation: Operation, shapes: Sequence[Shape], attributes: Any) -> Shape:
    """Return the shape of a result without computing it. Raises ValueError for unfit shapes."""
    if operation.family == "view":
        count = len(shapes) if operation.name == "concatenate" else 1
        moved = [hollow(shape) for shape in shapes[:count]]
        indices = [np.broadcast_to(np.int64(0), shape) for shape in shapes[count:]]
        return tuple(operation.value(*moved, *indices, **attributes).shape)
    if operation.name == "matmul":
        (*a, rows, inner), (*b, other, columns) = shapes
        if inner != other:
            raise ValueError(f"shapes {shapes[0]} and {shapes[1]} don't fit in a matrix product")
        return (*np.broadcast_shapes(tuple(a), tuple(b)), rows, columns)
    if operation.name == "einsum":
        return _einsum_shape(attributes["subscripts"], shapes)
    if "axes" in attributes:
        return tuple(1 if i in attributes["axes"] else n for i, n in enumerate(shapes[0]))
    return np.broadcast_shapes(*shapes)


def result_kind(operation: Operation, args: Sequence[tuple[Shape, Kind]], attributes: Any) -> Kind:
    """Return the kind of a result: NumPy's, for one element of each argument."""
    if operation.kind:
        return operation.kind
    if operation.name == "astype":
        kind: Kind = attributes["kind"]
        return kind
    ones: list[Array] = [np.ones((1,) * len(shape), DTYPES[kind]) for shape, kind in args]
    if operation.family == "view":
        moved = ones if operation.name == "concatenate" else ones[:1]
        return kind_of_dtype(np.result_type(*moved))
    return kind_of_dtype(np.asarray(operation.value(*ones, **attributes)).dtype)


def _einsum_shape(subscripts: str, shapes: Sequence[Shape]) -> Shape:
    terms, _, result = subscripts.partition("->")
    sizes: dict[str, int] = {}
    for term, shape in zip(terms.split(","), shapes, strict=True):
        if len(term) != len(shape):
            raise ValueError(f"{term!r} of einsum has {len(term)} axes, its operand {len(shape)}")
        for letter, size in zip(term, shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                raise ValueError(f"axis {letter!r} of einsum has {sizes[letter]} and {size}")
    return tuple(sizes[letter] for letter in result)


def _unread(*_: Any, **__: Any) -> Any:
    raise NotImplementedError("the interpreter owns inputs and formats")


def _gather(x: Array, *indices: Array, axes: Shape) -> Any:
    index: list[Any] = [slice(None)] * x.ndim
    for axis, array in zip(axes, indices, strict=True):
        index[axis] = array
    return x[tuple(index)]


def _astype(x: Array, kind: Kind) -> Any:
    return x.astype(DTYPES[kind])


def _astype_slopes(args: Sequence[Array], result: Array, attributes: Any) -> Sequence[float]:
    return (float(attributes["kind"] == "float"),)


def _remainder_slopes(args: Sequence[Array], result: Array, _: Any) -> Sequence[Any]:
    return 1.0, -np.floor(args[0] / args[1])


def _power_slopes(args: Sequence[Array], result: Array, _: Any) -> Sequence[Any]:
    base, exponent = args
    # a negative base has a power for whole exponents only, which have no error
    logarithm = np.log(np.where(base > 0, base, 1.0))
    return exponent * base ** (exponent - 1.0), result * logarithm


def _slice(x: Array, slices: Sequence[Sequence[int | None]]) -> Any:
    return x[tuple(slice(*limits) for limits in slices)]


def _smooth(
    name: str,
    unit: Unit,
    half_steps: float,
    slopes: Slopes,
    value: Callable[..., Any] | None = None,
) -> Operation:
    value = value or getattr(np, name)
    return Operation(name, value, "elementwise", unit, half_steps, slopes)


def _flat(args: Sequence[Array], result: Array, attributes: Any) -> Sequence[float]:
    return (0.0,) * len(args)


def _stepped(name: str, kind: Kind | None = None, is_edge: bool = True) -> Operation:
    value = getattr(np, name)
    return Operation(name, value, "elementwise", "sfpu", 0.0, _flat, is_edge, kind)


_comparison = partial(_stepped, kind="bool")
_test = partial(_stepped, kind="bool", is_edge=False)


def _sum(name: str, value: Callable[..., Any], kind: Kind | None = None) -> Operation:
    return Operation(name, value, "sum", "reduce", 1.0, kind=kind)


def _selection(name: str, value: Callable[..., Any], is_index: bool = False) -> Operation:
    kind: Kind | None = "int" if is_index else None
    return Operation(name, value, "select", "sfpu", discontinuous=is_index, kind=kind)


def _view(name: str, value: Callable[..., Any]) -> Operation:
    return Operation(name, value, "view", "move")


_BELL = 2 / math.sqrt(math.pi)
_TABLE = (
    # sources
    Operation("input", _unread, "source", "move"),
    Operation("parameter", decode_constant, "source", "move"),
    Operation("constant", decode_constant, "source", "move"),
    # arithmetic: (name, unit, half steps, slopes from arguments a and result r)
    _smooth("add", "fpu", 1, lambda a, r, _: (1.0, 1.0)),
    _smooth("subtract", "fpu", 1, lambda a, r, _: (1.0, -1.0)),
    _smooth("multiply", "fpu", 1, lambda a, r, _: (a[1], a[0])),
    _smooth("divide", "sfpu", FUNCTION, lambda a, r, _: (1 / a[1], -r / a[1])),
    _smooth("negative", "sfpu", 0, lambda a, r, _: (-1.0,)),
    _smooth("absolute", "sfpu", 0, lambda a, r, _: (np.sign(a[0]),)),
    _smooth("maximum", "sfpu", 0, lambda a, r, _: (a[0] >= a[1], a[0] < a[1])),
    _smooth("minimum", "sfpu", 0, lambda a, r, _: (a[0] <= a[1], a[0] > a[1])),
    _smooth("where", "sfpu", 0, lambda a, r, _: (0.0, a[0] != 0, a[0] == 0)),
    # functions
    _smooth("sqrt", "sfpu", 1, lambda a, r, _: (0.5 / r,)),
    _smooth("exp", "sfpu", FUNCTION, lambda a, r, _: (r,)),
    _smooth("exp2", "sfpu", FUNCTION, lambda a, r, _: (r * math.log(2),)),
    _smooth("expm1", "sfpu", FUNCTION, lambda a, r, _: (r + 1,)),
    _smooth("log", "sfpu", FUNCTION, lambda a, r, _: (1 / a[0],)),
    _smooth("log2", "sfpu", FUNCTION, lambda a, r, _: (1 / (a[0] * math.log(2)),)),
    _smooth("log1p", "sfpu", FUNCTION, lambda a, r, _: (1 / (1 + a[0]),)),
    _smooth("logaddexp", "sfpu", HARD, lambda a, r, _: (np.exp(a[0] - r), np.exp(a[1] - r))),
    _smooth("sin", "sfpu", FUNCTION, lambda a, r, _: (np.cos(a[0]),)),
    _smooth("cos", "sfpu", FUNCTION, lambda a, r, _: (-np.sin(a[0]),)),
    _smooth("tanh", "sfpu", FUNCTION, lambda a, r, _: (1 - r * r,)),
    _smooth("arctan", "sfpu", FUNCTION, lambda a, r, _: (1 / (1 + a[0] * a[0]),)),
    _smooth("power", "sfpu", HARD, _power_slopes),
    _smooth("erf", "sfpu", ROUGH, lambda a, r, _: (_BELL * np.exp(-a[0] * a[0]),), special.erf),
    _smooth("erfc", "sfpu", HARD, lambda a, r, _: (-_BELL * np.exp(-a[0] * a[0]),), special.erfc),
    # steps
    *map(_stepped, ("sign", "rint", "floor", "ceil", "trunc", "floor_divide")),
    *map(_comparison, ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")),
    *map(_test, ("isnan", "isfinite", "logical_not", "logical_and", "logical_or")),
    Operation("remainder", np.remainder, "elementwise", "sfpu", 1, _remainder_slopes, True),
    # formats: astype makes floats, ints or bools of others; quantize rounds to a format
    Operation("astype", _astype, "elementwise", "sfpu", 0, _astype_slopes, True),
    Operation("quantize", _unread, "elementwise", "sfpu", 0, lambda a, r, _: (1.0,), True, "float"),
    # masks by position, of the last two axes
    _smooth("tril", "sfpu", 0, lambda a, r, at: (np.tril(np.ones(r.shape), **at),)),
    _smooth("triu", "sfpu", 0, lambda a, r, at: (np.triu(np.ones(r.shape), **at),)),
    # reductions keep their axes, with size 1
    _sum("sum", lambda x, axes: np.sum(x, axes, keepdims=True)),
    _sum("mean", lambda x, axes: np.mean(x, axes, keepdims=True), "float"),
    _sum("var", lambda x, axes, ddof: np.var(x, axes, ddof=ddof, keepdims=True), "float"),
    _selection("max", lambda x, axes: np.max(x, axes, keepdims=True)),
    _selection("min", lambda x, axes: np.min(x, axes, keepdims=True)),
    _selection("argmax", lambda x, axes: np.argmax(x, axes[0], keepdims=True), is_index=True),
    _selection("argmin", lambda x, axes: np.argmin(x, axes[0], keepdims=True), is_index=True),
    # along an axis
    Operation("cumsum", lambda x, axis: np.cumsum(x, axis), "scan", "reduce", 1),
    _selection("sort", lambda x, axis: np.sort(x, axis, kind="stable")),
    _selection("argsort", lambda x, axis: np.argsort(x, axis, kind="stable"), is_index=True),
    # products
    Operation("matmul", np.matmul, "product", "fpu", 1),
    Operation("einsum", lambda a, b, subscripts: np.einsum(subscripts, a, b), "product", "fpu", 1),
    # elements moved; the first argument's (concatenate: every argument's) go to the result
    _view("reshape", lambda x, shape: np.reshape(x, shape)),
    _view("transpose", lambda x, order: np.transpose(x, order)),
    _view("broadcast_to", lambda x, shape: np.broadcast_to(x, shape)),
    _view("slice", _slice),
    _view("gather", _gather),
    _view("take_along_axis", lambda x, index, axis: np.take_along_axis(x, index, axis)),
    _view("concatenate", lambda *parts, axis: np.concatenate(parts, axis)),
    _view("sliding_window_view", lambda x, window, axes: sliding_window_view(x, window, axes)),
)

OPERATIONS: Mapping[str, Operation] = MappingProxyType({entry.name: entry for entry in _TABLE})
"""Every operation by its name."""

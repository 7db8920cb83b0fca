"""How NumPy's functions are written with the operations of the table."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from gonogo.graph import special
from gonogo.graph.operations import Shape, hollow, kind_of_dtype
from gonogo.graph.symbols import REWRITINGS, Symbol, record, rewrites

Axes = int | Sequence[int] | None
REFERENCE_FLOATS = ("float32", "float64")
"""Types that references compute in; smaller ones are formats, to which a value is rounded."""


def erf(x: Any) -> Any:
    """Return the error function of an array or of a traced value."""
    return record("erf", x) if isinstance(x, Symbol) else special.erf(x)


def erfc(x: Any) -> Any:
    """Return 1 - erf(x) of an array or of a traced value."""
    return record("erfc", x) if isinstance(x, Symbol) else special.erfc(x)


def quantize(x: Symbol, form: str) -> Symbol:
    """Return a traced value rounded to a format, such as "bf16"; interpreters know the formats."""
    return record("quantize", x, format=form)


@rewrites("power", "pow", "float_power")
def _power(x: Any, exponent: Any) -> Symbol:
    if isinstance(exponent, Symbol) or np.ndim(exponent):
        return record("power", x, exponent)
    if exponent == 2:
        return record("multiply", x, x)
    if exponent in (0.5, -0.5):
        x = record("sqrt", x)
    if exponent in (-1, -0.5):
        return record("divide", 1.0, x)
    return x if exponent in (1, 0.5) else record("power", x, exponent)


@rewrites("clip")
def _clip(x: Symbol, a_min: Any = None, a_max: Any = None, min: Any = None, max: Any = None) -> Any:
    lower = min if a_min is None else a_min
    upper = max if a_max is None else a_max
    x = x if lower is None else record("maximum", x, lower)
    return x if upper is None else record("minimum", x, upper)


def _bitwise(operation: str, *args: Any) -> Symbol:
    if {_kind(arg) for arg in args} != {"bool"}:
        raise TypeError("bits of ints can't be traced, only masks")
    return record(operation, *args)


def _kind(value: Any) -> str:
    return value.kind if isinstance(value, Symbol) else kind_of_dtype(np.asarray(value).dtype)


for _name, _operation in {
    "bitwise_and": "logical_and",
    "bitwise_or": "logical_or",
    "bitwise_xor": "not_equal",
    "invert": "logical_not",
}.items():
    rewrites(_name)(partial(_bitwise, _operation))


@rewrites("astype")
def _astype(x: Symbol, dtype: Any, copy: bool = True) -> Symbol:
    dtype = np.dtype(dtype)
    kind = kind_of_dtype(dtype)
    if kind == "float" and dtype.name not in REFERENCE_FLOATS:
        raise TypeError(f"{dtype.name} is a format; use gonogo.graph.quantize(x, format)")
    return x if x.kind == kind else record("astype", x, kind=kind)


# reductions


def _reduced(
    operation: str, x: Symbol, axis: Axes = None, *, keepdims: bool = False, **more: Any
) -> Symbol:
    axes = _axes(x, axis)
    return _dropped(record(operation, x, axes=axes, **more), () if keepdims else axes)


def _dropped(result: Symbol, axes: Shape) -> Symbol:
    """Return a result without axes of size 1; a local variable then names the result itself."""
    if not axes:
        return result
    shape = tuple(size for axis, size in enumerate(result.shape) if axis not in axes)
    dropped = record("reshape", result, shape=shape)
    result.tracer.carriers[dropped.id] = result.id
    return dropped


def _axes(x: Symbol, axis: Axes) -> Shape:
    if axis is None:
        return tuple(range(x.ndim))
    return tuple(sorted(normalize_axis_tuple(axis, x.ndim)))


for _name in ("sum", "mean", "max", "min"):
    rewrites(_name)(partial(_reduced, _name))
REWRITINGS |= {"amax": REWRITINGS["max"], "amin": REWRITINGS["min"]}


@rewrites("var")
def _var(x: Symbol, axis: Axes = None, *, ddof: int = 0, keepdims: bool = False) -> Symbol:
    return _reduced("var", x, axis, keepdims=keepdims, ddof=ddof)


@rewrites("std")
def _std(x: Symbol, axis: Axes = None, *, ddof: int = 0, keepdims: bool = False) -> Symbol:
    root = record("sqrt", _var(x, axis, ddof=ddof, keepdims=True))
    return _dropped(root, () if keepdims else _axes(x, axis))


def _chosen(
    operation: str, x: Symbol, axis: int | None = None, *, keepdims: bool = False
) -> Symbol:
    return _reduced(operation, *_flat_unless(x, axis), keepdims=keepdims)


def _along(operation: str, x: Symbol, axis: int | None = -1) -> Symbol:
    x, axis = _flat_unless(x, axis)
    return record(operation, x, axis=axis)


def _flat_unless(x: Any, axis: int | None) -> tuple[Symbol, int]:
    """Return a value and its axis, counted from 0; without an axis the value in one."""
    if axis is None:
        return _reshape(x, (-1,)), 0
    return x, normalize_axis_index(axis, np.ndim(x))


for _name in ("argmax", "argmin"):
    rewrites(_name)(partial(_chosen, _name))
for _name in ("sort", "argsort"):
    rewrites(_name)(partial(_along, _name))


# products


@rewrites("dot")
def _dot(a: Any, b: Any) -> Symbol:
    if np.ndim(b) > 2:
        raise ValueError("only matrices and vectors can be traced; use np.matmul or np.einsum")
    return _matmul(a, b) if np.ndim(a) and np.ndim(b) else record("multiply", a, b)


@rewrites("matmul")
def _matmul(a: Any, b: Any) -> Symbol:
    left, right = np.ndim(a), np.ndim(b)
    if not left or not right:
        raise ValueError("a factor has no axes; use *")
    a = _reshape(a, (1, *np.shape(a))) if left == 1 else a
    b = _reshape(b, (*np.shape(b), 1)) if right == 1 else b
    product = record("matmul", a, b)
    rank = product.ndim
    return _dropped(product, ((rank - 2,) if left == 1 else ()) + ((rank - 1,) * (right == 1)))


@rewrites("einsum")
def _einsum(subscripts: str, *operands: Any, optimize: Any = None) -> Any:
    """Write a product of several operands as products of two, from left to right."""
    terms, result = _subscripts(subscripts, [np.ndim(operand) for operand in operands])
    if any(len(set(term)) < len(term) for term in terms):
        raise ValueError(f"{subscripts!r} repeats an axis in an operand, which can't be traced")
    value, axes = operands[0], terms[0]
    for at in range(1, len(terms)):
        later = set(result).union(*terms[at + 1 :])
        both = "".join(x for x in dict.fromkeys(axes + terms[at]) if x in later)
        both = result if at == len(terms) - 1 else both
        value = record("einsum", value, operands[at], subscripts=f"{axes},{terms[at]}->{both}")
        axes = both
    if len(terms) > 1:
        return value
    gone = tuple(at for at, x in enumerate(axes) if x not in result)
    value = _reduced("sum", value, gone) if gone else value
    left = [x for x in axes if x in result]
    return _ordered("transpose", value, [left.index(x) for x in result])


def _subscripts(text: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Return the terms and the result of einsum's text, with a letter for each axis."""
    given, arrow, result = text.replace(" ", "").partition("->")
    terms = given.split(",")
    if len(terms) != len(ranks):
        raise ValueError(f"{text!r} is for {len(terms)} operands, not {len(ranks)}")
    free = [x for x in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if x not in text]
    rest = ""
    for at, (term, rank) in enumerate(zip(terms, ranks, strict=True)):
        letters = "".join(free[: rank - len(term) + 3][::-1]) if "..." in term else ""
        terms[at] = term.replace("...", letters)
        rest = max(rest, letters, key=len)
    every = "".join(terms)
    once = [x for x in sorted(every) if every.count(x) == 1 and x not in rest]
    return terms, result.replace("...", rest) if arrow else rest + "".join(once)


# elements moved


def _reshape(x: Any, shape: Sequence[int]) -> Any:
    if not isinstance(x, Symbol):
        return np.reshape(x, shape)
    shape = hollow(x.shape).reshape(shape).shape
    if shape == x.shape:
        return x
    result = record("reshape", x, shape=shape)
    carriers = result.tracer.carriers
    if x.id in carriers:  # such as mean(x)[:, None]
        carriers[result.id] = carriers[x.id]
    return result


def _shaped(name: str, x: Symbol, *args: Any, **options: Any) -> Any:
    return _reshape(x, _arranged(name, x.shape, args, options))


def _ordered(name: str, x: Symbol, *args: Any, **options: Any) -> Symbol:
    places = _arranged(name, tuple(range(1, x.ndim + 1)), args, options)
    order = tuple(place - 1 for place in places)
    return x if order == tuple(range(x.ndim)) else record("transpose", x, order=order)


def _arranged(name: str, shape: Shape, args: Sequence[Any], options: dict[str, Any]) -> Shape:
    """Return the shape that NumPy's method or function gives for one of a shape."""
    array = hollow(shape)
    if hasattr(array, name):
        return tuple(getattr(array, name)(*args, *options.values()).shape)
    return tuple(getattr(np, name)(array, *args, **options).shape)


for _name in ("reshape", "ravel", "flatten", "squeeze", "expand_dims"):
    rewrites(_name)(partial(_shaped, _name))
for _name in ("transpose", "permute_dims", "swapaxes", "moveaxis", "matrix_transpose"):
    rewrites(_name)(partial(_ordered, _name))


@rewrites("broadcast_to")
def _broadcast_to(x: Symbol, shape: Any) -> Symbol:
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    return x if shape == x.shape else record("broadcast_to", x, shape=shape)


@rewrites("repeat")
def _repeat(x: Symbol, repeats: int, axis: int | None = None) -> Any:
    x, axis = _flat_unless(x, axis)
    before, size, after = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
    wide = _broadcast_to(
        _reshape(x, (*before, size, 1, *after)), (*before, size, int(repeats), *after)
    )
    return _reshape(wide, (*before, size * int(repeats), *after))


@rewrites("concatenate", "concat")
def _concatenate(parts: Sequence[Any], axis: int = 0) -> Symbol:
    return record("concatenate", *parts, axis=normalize_axis_index(axis, np.ndim(parts[0])))


@rewrites("stack")
def _stack(parts: Sequence[Any], axis: int = 0) -> Symbol:
    at = normalize_axis_index(axis, np.ndim(parts[0]) + 1)
    return _concatenate([np.expand_dims(part, at) for part in parts], at)


@rewrites("split")
def _split(x: Symbol, sections: int | Sequence[int], axis: int = 0) -> list[Any]:
    axis = normalize_axis_index(axis, x.ndim)
    size = x.shape[axis]
    if isinstance(sections, int):
        if size % sections:
            raise ValueError(f"{size} elements can't be split into {sections} equal parts")
        sections = range(0, size, size // sections)[1:]
    before = (slice(None),) * axis
    return [x[(*before, slice(*ends))] for ends in pairwise((0, *sections, size))]


@rewrites("pad")
def _pad(x: Symbol, pad_width: Any, mode: str = "constant", constant_values: float = 0) -> Symbol:
    """Write padding as concatenation with a constant: what is padded has no error."""
    if mode != "constant":
        raise TypeError(f"mode={mode!r} can't be traced; only constants can be padded")
    filling = x.tracer.symbol(x.dtype.type(constant_values))
    for axis, widths in enumerate(np.broadcast_to(np.asarray(pad_width), (x.ndim, 2)).tolist()):
        before, after = (
            [record("broadcast_to", filling, shape=(*x.shape[:axis], width, *x.shape[axis + 1 :]))]
            for width in widths
        )
        parts = [*before * (widths[0] > 0), x, *after * (widths[1] > 0)]
        x = _concatenate(parts, axis) if len(parts) > 1 else x
    return x


@rewrites("sliding_window_view")
def _sliding_window_view(x: Symbol, window_shape: Any, axis: Axes = None) -> Symbol:
    window = tuple(np.atleast_1d(window_shape).tolist())
    axes = tuple(range(x.ndim)) if axis is None else normalize_axis_tuple(axis, x.ndim)
    return record("sliding_window_view", x, window=window, axes=axes)


# indices


@rewrites("take")
def _take(x: Any, indices: Any, axis: int | None = None) -> Symbol:
    x, axis = _flat_unless(x, axis)
    return record("gather", x, _indices(indices, np.shape(x)[axis]), axes=(axis,))


@rewrites("take_along_axis")
def _take_along_axis(x: Any, indices: Any, axis: int = -1) -> Symbol:
    axis = normalize_axis_index(axis, np.ndim(x))
    return record("take_along_axis", x, _indices(indices, np.shape(x)[axis]), axis=axis)


@rewrites("getitem")
def _getitem(x: Symbol, index: Any) -> Any:
    """Write x[index] as a slice, a gather of index arrays, and a reshape for the rest."""
    items: list[Any] = []
    for item in index if isinstance(index, tuple) else (index,):
        is_plain = item is None or item is Ellipsis or isinstance(item, slice | Symbol)
        array = item if is_plain else np.asarray(item)
        is_mask = isinstance(array, np.ndarray) and array.dtype == bool
        items += np.nonzero(array) if is_mask else [array]
    count = sum(item is not None and item is not Ellipsis for item in items)
    if count > x.ndim:
        raise IndexError(f"{count} indices for {x.ndim} axes")
    dots = next((at for at, item in enumerate(items) if item is Ellipsis), len(items))
    items[dots : dots + 1] = [slice(None)] * (x.ndim - count)
    sizes = iter(x.shape)
    x = _reshape(x, [1 if item is None else next(sizes) for item in items])
    arrays = {
        axis: _indices(item, x.shape[axis])
        for axis, item in enumerate(items)
        if not (item is None or isinstance(item, slice))
    }
    slices = [item if isinstance(item, slice) else slice(None) for item in items]
    if any(isinstance(array, Symbol) or array.ndim for array in arrays.values()):
        return _gathered(_sliced(x, slices), arrays)
    for axis, array in arrays.items():  # plain numbers: their axes go
        slices[axis] = slice(int(array), int(array) + 1)
    x = _sliced(x, slices)
    return _reshape(x, [size for axis, size in enumerate(x.shape) if axis not in arrays])


def _indices(indices: Any, size: int) -> Any:
    """Return index arrays, counted from 0. Raises IndexError for one outside the axis."""
    if _kind(indices) != "int":
        raise IndexError(f"an index has to be int, not {_kind(indices)}; for masks use np.where")
    if isinstance(indices, Symbol):
        return indices
    array = np.asarray(indices)
    if array.size and (array.min() < -size or array.max() >= size):
        raise IndexError(f"an index is outside the axis of {size} elements")
    return np.where(array < 0, array + size, array)


def _sliced(x: Symbol, slices: Sequence[slice]) -> Symbol:
    limits = [part.indices(size) for part, size in zip(slices, x.shape, strict=True)]
    if limits == [(0, size, 1) for size in x.shape]:
        return x
    # a backward slice that includes element 0 stops at None: -1 would be the last element
    plain = tuple((start, stop if stop >= 0 else None, step) for start, stop, step in limits)
    return record("slice", x, slices=plain)


def _gathered(x: Symbol, indices: dict[int, Any]) -> Symbol:
    """Return x at index arrays; x[np.arange(n), labels] takes each row's own element."""
    rows = indices.get(0)
    if list(indices) == [0, 1] and x.ndim == 2 and isinstance(rows, np.ndarray):
        labels = indices[1]
        if np.shape(labels) == rows.shape and np.array_equal(rows, np.arange(x.shape[0])):
            picked = record("take_along_axis", x, _reshape(labels, (-1, 1)), axis=1)
            return _dropped(picked, (1,))
    return record("gather", x, *indices.values(), axes=tuple(indices))


# functions of one line

REWRITINGS.update(
    {
        "all": lambda x, *args, **options: _reduced("min", _astype(x, bool), *args, **options),
        "any": lambda x, *args, **options: _reduced("max", _astype(x, bool), *args, **options),
        "copy": lambda x: x,
        "cumsum": lambda x, axis=None: _along("cumsum", x, axis),
        "full_like": lambda x, fill_value: np.full(x.shape, fill_value, x.dtype),
        "ndim": lambda x: x.ndim,
        "ones_like": lambda x, dtype=None: np.ones(x.shape, dtype or x.dtype),
        "positive": lambda x: x,
        "reciprocal": lambda x: record("divide", 1.0, x),
        "round": lambda x: record("rint", x),
        "shape": lambda x: x.shape,
        "size": lambda x: x.size,
        "square": lambda x: record("multiply", x, x),
        "tril": lambda x, k=0: record("tril", x, k=int(k)),
        "triu": lambda x, k=0: record("triu", x, k=int(k)),
        "where": lambda condition, x, y: record("where", condition, x, y),
        "zeros_like": lambda x, dtype=None: np.zeros(x.shape, dtype or x.dtype),
    }
)

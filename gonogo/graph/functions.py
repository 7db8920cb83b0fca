"""How NumPy's functions are written with the operations of the table."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple
from numpy.typing import ArrayLike

from gonogo.graph import special
from gonogo.graph.operations import Array, Shape, kind_of_dtype
from gonogo.graph.symbols import Symbol, call, record, rewrites

Axes = int | Sequence[int] | None
FLOATS = ("float32", "float64")
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


# elementwise


@rewrites("square")
def _square(x: Symbol) -> Symbol:
    return record("multiply", x, x)


@rewrites("reciprocal")
def _reciprocal(x: Symbol) -> Symbol:
    return record("divide", 1.0, x)


@rewrites("positive", "copy")
def _same(x: Symbol) -> Symbol:
    return x


@rewrites("power", "pow", "float_power")
def _power(x: Any, exponent: Any) -> Symbol:
    if not isinstance(exponent, Symbol) and np.ndim(exponent) == 0:
        if exponent == 2:
            return record("multiply", x, x)
        if exponent == 0.5:
            return record("sqrt", x)
        if exponent == -1:
            return record("divide", 1.0, x)
        if exponent == -0.5:
            return record("divide", 1.0, record("sqrt", x))
    return record("power", x, exponent)


@rewrites("clip")
def _clip(x: Symbol, a_min: Any = None, a_max: Any = None, min: Any = None, max: Any = None) -> Any:
    lower = min if a_min is None else a_min
    upper = max if a_max is None else a_max
    x = x if lower is None else record("maximum", x, lower)
    return x if upper is None else record("minimum", x, upper)


@rewrites("round", "around")
def _round(x: Symbol, decimals: int = 0) -> Symbol:
    if decimals:
        raise TypeError("decimals= can't be traced; multiply before and divide after")
    return record("rint", x)


@rewrites("fix")
def _fix(x: Symbol) -> Symbol:
    return record("trunc", x)


@rewrites("bitwise_and", "bitwise_or", "bitwise_xor", "logical_xor", "invert")
def _logic(*args: Any) -> Symbol:
    raise TypeError("unreachable")


@rewrites("where")
def _where(condition: Any, x: Any = None, y: Any = None) -> Symbol:
    if x is None or y is None:
        raise TypeError("only np.where(condition, x, y) can be traced")
    return record("where", condition, x, y)


@rewrites("astype")
def _astype(x: Symbol, dtype: Any, copy: bool = True) -> Symbol:
    dtype = np.dtype(dtype)
    kind = kind_of_dtype(dtype)
    value = x if x.kind == kind else record("astype", x, kind=kind)
    if kind == "float" and dtype.name not in FLOATS:
        raise TypeError(f"{dtype.name} is a format; use gonogo.graph.quantize(x, format)")
    return value


# reductions


def _reduced(operation: str, x: Any, axis: Axes, keepdims: bool, **more: Any) -> Symbol:
    axes = _axes(x, axis)
    return _dropped(record(operation, x, axes=axes, **more), axes, keepdims)


def _dropped(result: Symbol, axes: Shape, keepdims: bool) -> Symbol:
    """Return a result without the axes that were reduced; it keeps the result's name."""
    if keepdims or not axes:
        return result
    shape = tuple(size for axis, size in enumerate(result.shape) if axis not in axes)
    dropped = record("reshape", result, shape=shape)
    result.tracer.carriers[dropped.id] = result.id
    return dropped


def _axes(x: Symbol, axis: Axes) -> Shape:
    if axis is None:
        return tuple(range(x.ndim))
    return tuple(sorted(normalize_axis_tuple(axis, x.ndim)))


@rewrites("sum")
def _sum(x: Symbol, axis: Axes = None, *, keepdims: bool = False) -> Symbol:
    return _reduced("sum", x, axis, keepdims)


@rewrites("mean")
def _mean(x: Symbol, axis: Axes = None, *, keepdims: bool = False) -> Symbol:
    return _reduced("mean", x, axis, keepdims)


@rewrites("max", "amax")
def _max(x: Symbol, axis: Axes = None, *, keepdims: bool = False) -> Symbol:
    return _reduced("max", x, axis, keepdims)


@rewrites("min", "amin")
def _min(x: Symbol, axis: Axes = None, *, keepdims: bool = False) -> Symbol:
    return _reduced("min", x, axis, keepdims)


@rewrites("any")
def _any(x: Symbol, axis: Axes = None, *, keepdims: bool = False) -> Symbol:
    return _reduced("max", _astype(x, bool), axis, keepdims)


@rewrites("all")
def _all(x: Symbol, axis: Axes = None, *, keepdims: bool = False) -> Symbol:
    return _reduced("min", _astype(x, bool), axis, keepdims)


@rewrites("var")
def _var(x: Symbol, axis: Axes = None, *, ddof: int = 0, keepdims: bool = False) -> Symbol:
    return _reduced("var", x, axis, keepdims, ddof=ddof)


@rewrites("std")
def _std(x: Symbol, axis: Axes = None, *, ddof: int = 0, keepdims: bool = False) -> Symbol:
    axes = _axes(x, axis)
    root = record("sqrt", record("var", x, axes=axes, ddof=ddof))
    return _dropped(root, axes, keepdims)


@rewrites("norm")
def _norm(x: Symbol, *, axis: Axes = None, keepdims: bool = False) -> Symbol:
    axes = _axes(x, axis)
    root = record("sqrt", record("sum", record("multiply", x, x), axes=axes))
    return _dropped(root, axes, keepdims)


@rewrites("argmax")
def _argmax(x: Symbol, axis: int | None = None, *, keepdims: bool = False) -> Symbol:
    x, axis = _flat_unless(x, axis)
    return _reduced("argmax", x, axis, keepdims)


@rewrites("argmin")
def _argmin(x: Symbol, axis: int | None = None, *, keepdims: bool = False) -> Symbol:
    x, axis = _flat_unless(x, axis)
    return _reduced("argmin", x, axis, keepdims)


def _flat_unless(x: Symbol, axis: int | None) -> tuple[Symbol, int]:
    """Return a value and its axis, counted from 0; without an axis the value in one."""
    if axis is None:
        return _reshape(x, -1), 0
    return x, normalize_axis_index(axis, x.ndim)


# along an axis


@rewrites("cumsum")
def _cumsum(x: Symbol, axis: int | None = None) -> Symbol:
    x, axis = _flat_unless(x, axis)
    return record("cumsum", x, axis=axis)


@rewrites("sort")
def _sort(x: Symbol, axis: int | None = -1) -> Symbol:
    x, axis = _flat_unless(x, axis)
    return record("sort", x, axis=axis)


@rewrites("argsort")
def _argsort(x: Symbol, axis: int | None = -1, *, kind: str | None = None) -> Symbol:
    x, axis = _flat_unless(x, axis)
    return record("argsort", x, axis=axis)


@rewrites("take_along_axis")
def _take_along_axis(x: Symbol, indices: Any, axis: int = -1) -> Symbol:
    return record("take_along_axis", x, indices, axis=normalize_axis_index(axis, np.ndim(x)))


@rewrites("take")
def _take(x: Any, indices: Any, axis: int | None = None) -> Symbol:
    flat = axis is None
    x = _reshape(x, -1) if flat else x
    at = 0 if axis is None else normalize_axis_index(axis, np.ndim(x))
    return record("gather", x, _indices(indices, np.shape(x)[at]), axes=(at,))


@rewrites("tril")
def _tril(x: Symbol, k: int = 0) -> Symbol:
    return record("tril", x, k=operator.index(k))


@rewrites("triu")
def _triu(x: Symbol, k: int = 0) -> Symbol:
    return record("triu", x, k=operator.index(k))


# products


@rewrites("matmul", "dot")
def _matmul(a: Any, b: Any) -> Symbol:
    shapes = np.shape(a), np.shape(b)
    if not all(shapes):
        return record("multiply", a, b)
    left = _reshape(a, (1, *shapes[0])) if len(shapes[0]) == 1 else a
    right = _reshape(b, (*shapes[1], 1)) if len(shapes[1]) == 1 else b
    product = record("matmul", left, right)
    axes = ((product.ndim - 2,) if len(shapes[0]) == 1 else ()) + (
        (product.ndim - 1,) if len(shapes[1]) == 1 else ()
    )
    return _dropped(product, axes, keepdims=False)


@rewrites("outer")
def _outer(a: Any, b: Any) -> Symbol:
    return record("multiply", _reshape(a, (-1, 1)), _reshape(b, (1, -1)))


@rewrites("einsum")
def _einsum(subscripts: str, *operands: Any, optimize: Any = None) -> Symbol:
    """Write a product of several operands as products of two, from left to right."""
    terms, result = _subscripts(subscripts, [np.ndim(each) for each in operands])
    if any(len(set(term)) < len(term) for term in terms):
        raise ValueError(f"{subscripts!r} repeats an axis in an operand, which can't be traced")
    value, axes = operands[0], terms[0]
    for at, term in enumerate(terms[1:], 1):
        later = set(result).union(*terms[at + 1 :])
        union = "".join(dict.fromkeys(axes + term))
        both = "".join(each for each in union if each in later) if terms[at + 1 :] else result
        value = record("einsum", value, operands[at], subscripts=f"{axes},{term}->{both}")
        axes = both
    if axes != result:
        gone = tuple(at for at, each in enumerate(axes) if each not in result)
        value = _reduced("sum", value, gone, keepdims=False) if gone else value
        axes = "".join(each for each in axes if each in result)
        value = _transpose(value, [axes.index(each) for each in result])
    return value  # type: ignore[no-any-return]


def _subscripts(text: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Return the terms and the result of einsum's text, with letters for each axis."""
    given, arrow, result = text.replace(" ", "").partition("->")
    terms = given.split(",")
    if len(terms) != len(ranks):
        raise ValueError(f"{text!r} is for {len(terms)} operands, not {len(ranks)}")
    free = [each for each in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if each not in text]
    most = 0
    for at, (term, rank) in enumerate(zip(terms, ranks, strict=True)):
        if "..." in term:
            count = rank - len(term) + 3
            most = max(most, count)
            terms[at] = term.replace("...", "".join(free[:count][::-1]))
    rest = "".join(free[:most][::-1])
    if not arrow:
        letters = "".join(terms)
        once = [each for each in sorted(letters) if letters.count(each) == 1]
        return terms, rest + "".join(each for each in once if each not in rest)
    return terms, result.replace("...", rest)


# elements moved


@rewrites("reshape")
def _reshape(x: Any, *shape: Any) -> Any:
    new = shape[0] if len(shape) == 1 else shape
    if not isinstance(x, Symbol):
        return np.reshape(x, new)
    new = _full_shape(x.size, (new,) if isinstance(new, int | np.integer) else tuple(new))
    return x if new == x.shape else record("reshape", x, shape=new)


def _full_shape(size: int, shape: Sequence[int]) -> Shape:
    """Return a shape with the size that -1 stands for."""
    return np.broadcast_to(np.empty((), np.dtype([])), (size,)).reshape(tuple(shape)).shape


@rewrites("ravel", "flatten")
def _ravel(x: Symbol) -> Symbol:
    return _reshape(x, -1)  # type: ignore[no-any-return]


@rewrites("expand_dims")
def _expand_dims(x: Symbol, axis: int | Sequence[int]) -> Symbol:
    count = 1 if isinstance(axis, int) else len(axis)
    axes = normalize_axis_tuple(axis, x.ndim + count)
    sizes = iter(x.shape)
    return _reshape(  # type: ignore[no-any-return]
        x, tuple(1 if at in axes else next(sizes) for at in range(x.ndim + count))
    )


@rewrites("squeeze")
def _squeeze(x: Symbol, axis: Axes = None) -> Symbol:
    gone = _axes(x, axis) if axis is not None else [i for i, n in enumerate(x.shape) if n == 1]
    return _reshape(  # type: ignore[no-any-return]
        x, tuple(n for i, n in enumerate(x.shape) if i not in gone)
    )


@rewrites("transpose", "permute_dims")
def _transpose(x: Symbol, *axes: Any) -> Symbol:
    if len(axes) == 1 and not isinstance(axes[0], int):
        axes = () if axes[0] is None else tuple(axes[0])
    order = normalize_axis_tuple(axes, x.ndim) if axes else tuple(range(x.ndim))[::-1]
    return x if order == tuple(range(x.ndim)) else record("transpose", x, order=order)


@rewrites("matrix_transpose")
def _matrix_transpose(x: Symbol) -> Symbol:
    return _swapaxes(x, -1, -2)


@rewrites("swapaxes")
def _swapaxes(x: Symbol, axis1: int, axis2: int) -> Symbol:
    order = list(range(x.ndim))
    order[axis1], order[axis2] = order[axis2], order[axis1]
    return _transpose(x, order)


@rewrites("moveaxis")
def _moveaxis(x: Symbol, source: Any, destination: Any) -> Symbol:
    places = np.moveaxis(np.empty((1,) * x.ndim), source, destination)  # checks the axes
    starts, ends = (normalize_axis_tuple(axes, places.ndim) for axes in (source, destination))
    order = [axis for axis in range(x.ndim) if axis not in starts]
    for end, start in sorted(zip(ends, starts, strict=True)):
        order.insert(end, start)
    return _transpose(x, order)


@rewrites("broadcast_to")
def _broadcast_to(x: Symbol, shape: Any) -> Symbol:
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    return x if shape == x.shape else record("broadcast_to", x, shape=shape)


@rewrites("repeat")
def _repeat(x: Symbol, repeats: int, axis: int | None = None) -> Symbol:
    x, axis = _flat_unless(x, axis)
    before, size, after = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
    wide = _broadcast_to(_expand_dims(x, axis + 1), (*before, size, int(repeats), *after))
    return _reshape(wide, (*before, -1, *after))  # type: ignore[no-any-return]


@rewrites("concatenate", "concat")
def _concatenate(parts: Sequence[Any], axis: int | None = 0) -> Symbol:
    if axis is None:
        parts, axis = [_reshape(part, -1) for part in parts], 0
    return record("concatenate", *parts, axis=normalize_axis_index(axis, np.ndim(parts[0])))


@rewrites("stack")
def _stack(parts: Sequence[Any], axis: int = 0) -> Symbol:
    at = normalize_axis_index(axis, np.ndim(parts[0]) + 1)
    return _concatenate([np.expand_dims(part, at) for part in parts], at)


@rewrites("split")
def _split(x: Symbol, sections: int | Sequence[int], axis: int = 0) -> list[Symbol]:
    axis = normalize_axis_index(axis, x.ndim)
    size = x.shape[axis]
    if isinstance(sections, int):
        if size % sections:
            raise ValueError(f"{size} elements can't be split into {sections} equal parts")
        sections = range(0, size, size // sections)[1:]
    ends = (0, *sections, size)
    before = (slice(None),) * axis
    return [x[(*before, slice(a, b))] for a, b in zip(ends[:-1], ends[1:], strict=True)]


@rewrites("flip")
def _flip(x: Symbol, axis: Axes = None) -> Symbol:
    axes = _axes(x, axis)
    backward = slice(None, None, -1)
    return x[tuple(backward if at in axes else slice(None) for at in range(x.ndim))]  # type: ignore[no-any-return]


@rewrites("roll")
def _roll(x: Symbol, shift: int, axis: int) -> Symbol:
    axis = normalize_axis_index(axis, x.ndim)
    first = -shift % x.shape[axis]
    return _concatenate(_split(x, [first], axis)[::-1], axis) if first else x


@rewrites("pad")
def _pad(x: Symbol, pad_width: Any, mode: str = "constant", constant_values: float = 0) -> Symbol:
    """Write padding as concatenation with a constant, so that no error enters it."""
    if mode != "constant":
        raise TypeError(f"mode={mode!r} can't be traced; only constants can be padded")
    for axis, widths in enumerate(np.broadcast_to(np.asarray(pad_width), (x.ndim, 2)).tolist()):
        filling = x.tracer.symbol(x.dtype.type(constant_values))
        shapes = [(*x.shape[:axis], width, *x.shape[axis + 1 :]) for width in widths]
        before, after = (
            [record("broadcast_to", filling, shape=shape)] if width else []
            for width, shape in zip(widths, shapes, strict=True)
        )
        x = _concatenate([*before, x, *after], axis) if before or after else x
    return x


@rewrites("sliding_window_view")
def _sliding_window_view(x: Symbol, window_shape: Any, axis: Axes = None) -> Symbol:
    window = (window_shape,) if isinstance(window_shape, int) else tuple(window_shape)
    axes = tuple(range(x.ndim)) if axis is None else normalize_axis_tuple(axis, x.ndim)
    return record("sliding_window_view", x, window=window, axes=axes)


@rewrites("getitem")
def _getitem(x: Symbol, index: Any) -> Symbol:
    """Write x[index] as a slice, a gather of index arrays, and a reshape for the rest."""
    items = [
        each if each is None or isinstance(each, slice | Symbol) or each is Ellipsis
        else np.asarray(each)
        for each in (index if isinstance(index, tuple) else (index,))
    ]  # fmt: skip
    items = [
        part
        for each in items
        for part in (
            np.nonzero(each) if isinstance(each, np.ndarray) and each.dtype == bool else [each]
        )
    ]
    used = sum(each is not None and each is not Ellipsis for each in items)
    if used > x.ndim:
        raise IndexError(f"{used} indices for {x.ndim} axes")
    at = next((i for i, each in enumerate(items) if each is Ellipsis), len(items))
    items[at : at + 1] = [slice(None)] * (x.ndim - used)
    sizes = iter(x.shape)
    x = _reshape(x, [1 if each is None else next(sizes) for each in items])
    items = [slice(None) if each is None else each for each in items]
    slices = [each if isinstance(each, slice) else slice(None) for each in items]
    arrays = {i: each for i, each in enumerate(items) if not isinstance(each, slice)}
    indices = {axis: _indices(each, x.shape[axis]) for axis, each in arrays.items()}
    is_single = all(isinstance(each, np.ndarray) and each.ndim == 0 for each in arrays.values())
    if is_single:  # plain numbers: their axes go
        for axis, each in indices.items():
            slices[axis] = slice(int(each), int(each) + 1)
    x = _sliced(x, slices)
    if not arrays:
        return x
    if is_single:
        return _reshape(x, [n for i, n in enumerate(x.shape) if i not in arrays])  # type: ignore[no-any-return]
    return _gathered(x, indices)


def _indices(indices: Any, size: int) -> Any:
    """Return index arrays, counted from 0. Raises IndexError for one outside the axis."""
    if isinstance(indices, Symbol):
        if indices.kind != "int":
            raise IndexError(f"an index has to be int, not {indices.kind}; for masks use np.where")
        return indices
    array = np.asarray(indices)
    if array.dtype.kind not in "iu":
        raise IndexError(f"an index has to be int, not {array.dtype}")
    if array.size and (array.min() < -size or array.max() >= size):
        raise IndexError(f"an index is outside the axis of {size} elements")
    return np.where(array < 0, array + size, array)


def _sliced(x: Symbol, slices: Sequence[slice]) -> Symbol:
    plain: list[tuple[int, int | None, int]] = []
    for each, size in zip(slices, x.shape, strict=True):
        start, stop, step = each.indices(size)
        plain.append((start, stop if stop >= 0 else None, step))
    if all(each == (0, size, 1) for each, size in zip(plain, x.shape, strict=True)):
        return x
    return record("slice", x, slices=tuple(plain))


def _gathered(x: Symbol, indices: dict[int, Any]) -> Symbol:
    """Return x at index arrays; x[np.arange(n), labels] takes each row's own element."""
    rows = indices.get(0)
    if list(indices) == [0, 1] and x.ndim == 2 and isinstance(rows, np.ndarray):
        labels = indices[1]
        if np.shape(labels) == rows.shape and np.array_equal(rows, np.arange(x.shape[0])):
            own = record("take_along_axis", x, _reshape(labels, (-1, 1)), axis=1)
            return _dropped(own, (1,), keepdims=False)
    return record("gather", x, *indices.values(), axes=tuple(indices))


# arrays of constants in the shape of a value


@rewrites("zeros_like", "empty_like")
def _zeros_like(x: Symbol, dtype: Any = None) -> Array:
    return np.zeros(x.shape, dtype or x.dtype)


@rewrites("ones_like")
def _ones_like(x: Symbol, dtype: Any = None) -> Array:
    return np.ones(x.shape, dtype or x.dtype)


@rewrites("full_like")
def _full_like(x: Any, fill_value: ArrayLike, dtype: Any = None) -> Array:
    return np.full(np.shape(x), fill_value, dtype)


@rewrites("shape")
def _shape(x: Symbol) -> Shape:
    return x.shape

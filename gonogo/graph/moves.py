"""How NumPy's functions that move elements are written: shapes, windows and indices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from gonogo.graph.operations import Shape, hollow, kind_of_dtype
from gonogo.graph.symbols import Symbol, record, rewrites

Axes = int | Sequence[int] | None


def kind_of(value: Any) -> str:
    """Return the kind of a traced value, or of an array."""
    return value.kind if isinstance(value, Symbol) else kind_of_dtype(np.asarray(value).dtype)


def dropped(result: Symbol, axes: Shape) -> Symbol:
    """Return a result without axes of size 1; a local variable then names the result itself."""
    if not axes:
        return result
    shape = tuple(size for axis, size in enumerate(result.shape) if axis not in axes)
    without = record("reshape", result, shape=shape)
    result.tracer.carriers[without.id] = result.id
    return without


def flat_unless(x: Any, axis: int | None) -> tuple[Symbol, int]:
    """Return a value and its axis, counted from 0; without an axis the value in one."""
    if axis is None:
        return reshape(x, (-1,)), 0
    return x, normalize_axis_index(axis, np.ndim(x))


def reshape(x: Any, shape: Sequence[int]) -> Any:
    """Return a value or an array in another shape."""
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
    return reshape(x, _arranged(name, x.shape, args, options))


def ordered(name: str, x: Symbol, *args: Any, **options: Any) -> Symbol:
    """Record a transposition, as NumPy's function of that name makes it."""
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
    rewrites(_name)(partial(ordered, _name))


@rewrites("broadcast_to")
def _broadcast_to(x: Symbol, shape: Any) -> Symbol:
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    return x if shape == x.shape else record("broadcast_to", x, shape=shape)


@rewrites("repeat")
def _repeat(x: Symbol, repeats: int, axis: int | None = None) -> Any:
    x, axis = flat_unless(x, axis)
    before, size, after = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
    wide = _broadcast_to(
        reshape(x, (*before, size, 1, *after)), (*before, size, int(repeats), *after)
    )
    return reshape(wide, (*before, size * int(repeats), *after))


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
    x, axis = flat_unless(x, axis)
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
    x = reshape(x, [1 if item is None else next(sizes) for item in items])
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
    return reshape(x, [size for axis, size in enumerate(x.shape) if axis not in arrays])


def _indices(indices: Any, size: int) -> Any:
    """Return index arrays, counted from 0. Raises IndexError for one outside the axis."""
    if kind_of(indices) != "int":
        raise IndexError(f"an index has to be int, not {kind_of(indices)}; for masks use np.where")
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
            picked = record("take_along_axis", x, reshape(labels, (-1, 1)), axis=1)
            return dropped(picked, (1,))
    return record("gather", x, *indices.values(), axes=tuple(indices))

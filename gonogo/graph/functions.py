"""How NumPy's functions are written with the operations of the table."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from gonogo.graph import special
from gonogo.graph.moves import Axes, dropped, flat_unless, kind_of, ordered, reshape
from gonogo.graph.operations import Shape, kind_of_dtype
from gonogo.graph.symbols import REWRITINGS, Symbol, record, rewrites

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
    if {kind_of(arg) for arg in args} != {"bool"}:
        raise TypeError("bits of ints can't be traced, only masks")
    return record(operation, *args)


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
    return dropped(record(operation, x, axes=axes, **more), () if keepdims else axes)


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
    return dropped(root, () if keepdims else _axes(x, axis))


def _chosen(
    operation: str, x: Symbol, axis: int | None = None, *, keepdims: bool = False
) -> Symbol:
    return _reduced(operation, *flat_unless(x, axis), keepdims=keepdims)


def _along(operation: str, x: Symbol, axis: int | None = -1) -> Symbol:
    x, axis = flat_unless(x, axis)
    return record(operation, x, axis=axis)


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
    a = reshape(a, (1, *np.shape(a))) if left == 1 else a
    b = reshape(b, (*np.shape(b), 1)) if right == 1 else b
    product = record("matmul", a, b)
    rank = product.ndim
    return dropped(product, ((rank - 2,) if left == 1 else ()) + ((rank - 1,) * (right == 1)))


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
    return ordered("transpose", value, [left.index(x) for x in result])


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

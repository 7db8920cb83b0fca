"""Symbols: what a kernel computes with while it is traced, and the record that they leave."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import FrameType
from typing import Any, TypeVar

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from gonogo.graph.data import Graph
from gonogo.graph.operations import (
    DTYPES,
    OPERATIONS,
    Kind,
    Shape,
    encode_constant,
    kind_of_dtype,
    result_kind,
    result_shape,
)
from gonogo.graph.refusals import TraceError, did_you_mean, is_kernels, refusal

Function = TypeVar("Function", bound=Callable[..., Any])

REWRITINGS: dict[str, Callable[..., Any]] = {}
"""By NumPy's name of a function: how it is written with the operations of the table."""
MAKERS = ("astype", "empty_like", "full_like", "ones_like", "zeros_like")
"""Functions that are asked for a type."""
REFUSED_OPTIONS = {
    "out": "the function returns its result",
    "where": "use np.where on what it takes",
    "dtype": "leave it out: formats are a program's, not a reference's",
    "order": "leave it out: only the order of C is traced",
    "casting": "leave it out",
    "initial": "leave it out",
}
"""Options of NumPy's functions that have no meaning on symbols, and what to do."""


def rewrites(*names: str) -> Callable[[Function], Function]:
    """Register a function as the writing of NumPy's functions of these names."""

    def register(function: Function) -> Function:
        REWRITINGS.update(dict.fromkeys(names, function))
        return function

    return register


class Symbol(NDArrayOperatorsMixin):
    """A value of a kernel that is traced: it has a shape and a kind, and no numbers."""

    def __init__(self, tracer: Tracer, id: int, shape: Shape, kind: Kind) -> None:
        self.tracer = tracer
        self.id = id
        self.shape = shape
        self.kind = kind
        self.ndim = len(shape)
        self.size = int(np.prod(shape, dtype=np.int64))
        self.dtype = np.dtype(DTYPES[kind])

    @property
    def T(self) -> Any:
        return self._call("transpose")

    @property
    def mT(self) -> Any:
        return self._call("matrix_transpose")

    def _call(self, name: str, *args: Any, **options: Any) -> Any:
        return call(name, (self, *args), options)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *args: Any, **options: Any) -> Any:
        if method != "__call__":
            raise refusal(
                f"np.{ufunc.__name__}.{method} can't be traced", "use np.sum, np.max or np.cumsum"
            )
        if any(arg is result for arg in args for result in options.get("out", ())):
            raise refusal("a change in place (x += y, out=x) can't be traced", "write x = x + y")
        return call(ufunc.__name__, args, options)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        return call(function.__name__, args, options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        methods = {*REWRITINGS} & {*dir(np.ndarray)} - {"sort"}  # x.sort() sorts in place
        if name not in methods:
            raise refusal(f"x.{name} can't be traced", did_you_mean(name, methods))
        return partial(self._call, name)

    def __getitem__(self, index: Any) -> Any:
        return self._call("getitem", index)

    def __len__(self) -> int:
        if not self.shape:
            raise refusal("len() of a value without axes")
        return self.shape[0]

    def __abs__(self) -> Any:
        return self._call("absolute")

    def __round__(self) -> Any:
        return self._call("round")

    def __repr__(self) -> str:
        return f"Symbol(#{self.id}, shape={self.shape}, kind={self.kind!r})"


def _refuser(problem: str, instead: str) -> Callable[..., Any]:
    def refuse(self: Symbol, *_: Any, **__: Any) -> Any:
        raise refusal(f"{problem} can't be traced", instead)

    return refuse


_NUMBER = ("float(x), int(x), range(x) or math.sqrt(x)", "use NumPy's functions, such as np.sqrt")
for _method, _texts in {
    "__array__": (
        "a conversion to an array (np.asarray(x), np.array([x, y]), a[i] = x, table[x])",
        "leave np.asarray out; use np.stack or np.where; pass tables as inputs",
    ),
    "__bool__": (
        "a decision on a value (if x > 0, x and y, min(x, y))",
        "use np.where, np.logical_and or np.minimum",
    ),
    "__float__": _NUMBER,
    "__int__": _NUMBER,
    "__index__": _NUMBER,
    "__iter__": ("iteration over a value", "write x[i] with i from range(x.shape[0])"),
    "__contains__": ("`in`", "compare with =="),
    "__setitem__": ("x[i] = v", "use np.where or np.concatenate"),
}.items():
    setattr(Symbol, _method, _refuser(*_texts))


def call(name: str, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """Write a call of a NumPy function into the record. Raises TraceError where it can't."""
    for option, instead in REFUSED_OPTIONS.items():
        if option in options and name not in MAKERS:
            raise refusal(f"np.{name} can't be traced with {option}=", instead)
    if name not in REWRITINGS and name not in OPERATIONS:
        known = {*REWRITINGS, *OPERATIONS}
        raise refusal(f"np.{name} can't be traced", did_you_mean(name, known))
    try:
        if name in REWRITINGS:
            return REWRITINGS[name](*args, **options)
        return record(name, *args, **options)
    except TraceError:
        raise
    except (TypeError, ValueError, IndexError) as problem:
        text = re.sub(r"^[\w.<>]+\(\) ", "", str(problem))  # "_sum() got ..." names our function
        raise refusal(f"np.{name}: {text}") from problem


def record(operation: str, *args: Any, **attributes: Any) -> Symbol:
    """Write an operation into the record of the first symbol among its arguments."""
    tracer = next(arg.tracer for arg in args if isinstance(arg, Symbol))
    return tracer.record(operation, args, attributes)


class Tracer:
    """The record of a kernel's operations.

    Values take the first local variable that held them. The local variables are those of the
    frames that are active at an operation; a frame is kept after its function's end, until it has
    been looked at once more. So no profile function is needed, which a debugger may have taken.

    Attributes:
        root: the frame that calls the kernel.
    """

    def __init__(self, root: FrameType) -> None:
        self.root = root
        self.rows: list[dict[str, Any]] = []
        self.names: dict[int, str] = {}
        self.carriers: dict[int, int] = {}
        """By a value that only drops the axes of another one: that one, which takes the name."""
        self.frames: list[FrameType] = []
        self._count: Counter[str] = Counter()

    def source(self, operation: str, name: str, shape: Shape, kind: Kind, **data: Any) -> Symbol:
        """Record an input or a parameter under its own name."""
        symbol = self._symbol(operation, (), data, shape, kind)
        self.name(symbol.id, name)
        return symbol

    def symbol(self, value: Any) -> Symbol:
        """Return a symbol as it is, anything else as a constant."""
        if isinstance(value, Symbol):
            if value.tracer is not self:
                raise refusal("the value comes from another trace", "pass it as an input")
            return value
        array = np.asarray(value)
        kind = kind_of_dtype(array.dtype)
        return self._symbol("constant", (), encode_constant(array), array.shape, kind)

    def record(self, operation: str, args: Sequence[Any], attributes: dict[str, Any]) -> Symbol:
        """Append an operation; return its value."""
        self.name_locals(_active_frames(self.root))
        symbols = [self.symbol(arg) for arg in args]
        entry = OPERATIONS[operation]
        shape = result_shape(entry, [symbol.shape for symbol in symbols], attributes)
        kind = result_kind(entry, [(symbol.shape, symbol.kind) for symbol in symbols], attributes)
        return self._symbol(operation, [symbol.id for symbol in symbols], attributes, shape, kind)

    def _symbol(
        self, operation: str, args: Sequence[int], attributes: Any, shape: Shape, kind: Kind
    ) -> Symbol:
        row = {"operation": operation, "args": args, "attributes": attributes}
        self.rows.append({**row, "shape": shape, "kind": kind})
        return Symbol(self, len(self.rows) - 1, shape, kind)

    def name(self, id: int, name: str) -> None:
        """Name a value, unless it has a name: "scores", then "scores[2]"."""
        id = self.carriers.get(id, id)
        if id not in self.names and self.rows[id]["operation"] != "constant":
            self._count[name] += 1
            self.names[id] = name if self._count[name] == 1 else f"{name}[{self._count[name]}]"

    def name_locals(self, active: Sequence[FrameType]) -> None:
        """Name values by the local variables of ended functions, then of active ones."""
        ended = [frame for frame in self.frames if frame not in active]
        for frame in (*reversed(ended), *active):
            for name, value in frame.f_locals.items():
                if isinstance(value, Symbol) and value.tracer is self:
                    self.name(value.id, name)
        self.frames = list(active)

    def graph(self, outputs: Mapping[str, Symbol]) -> Graph:
        """Return the graph of what the outputs need, with every input and parameter."""
        for name, symbol in outputs.items():
            self.name(symbol.id, name)
        needed = {symbol.id for symbol in outputs.values()}
        for id, row in reversed(list(enumerate(self.rows))):
            if id in needed or row["operation"] in ("input", "parameter"):
                needed |= {id, *row["args"]}
        places = {id: at for at, id in enumerate(sorted(needed))}
        rows = []
        for id in places:
            args = [places[arg] for arg in self.rows[id]["args"]]
            rows.append({**self.rows[id], "args": args, "name": self.names.get(id)})
        return Graph.of_rows(rows, {name: places[symbol.id] for name, symbol in outputs.items()})


def _active_frames(root: FrameType) -> list[FrameType]:
    """Return the kernel's own frames that are active, the kernel's first."""
    frames: list[FrameType] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame is not root:
        if is_kernels(frame):
            frames.append(frame)
        frame = frame.f_back
    return frames[::-1]

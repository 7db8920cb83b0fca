"""Trace a plain NumPy function: run it once on symbols, and return the graph of what it did."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from gonogo.graph import functions as functions  # registers how NumPy's functions are written
from gonogo.graph.data import Graph
from gonogo.graph.operations import Array, Kind, Shape, encode_constant, kind_of_dtype
from gonogo.graph.refusals import TraceError
from gonogo.graph.symbols import Symbol, Tracer


@dataclass(frozen=True)
class Spec:
    """The shape and kind of an input, for tracing without its values."""

    shape: Shape
    kind: Kind = "float"


def trace(
    function: Callable[..., Any], inputs: Mapping[str, Array | Spec], /, **parameters: Any
) -> Graph:
    """Return the graph of `function(**inputs, **parameters)`, which returns a dict of outputs.

    Local variables name the operations. Floats among the parameters, defaults included, are nodes
    with their names; ints, bools and strings are Python's. Raises TraceError for what can't be
    traced.
    """
    tracer = Tracer(sys._getframe())
    given: dict[str, Any] = {}
    for name, value in inputs.items():
        spec = value if isinstance(value, Spec) else _spec(name, value)
        given[name] = tracer.source("input", name, tuple(spec.shape), spec.kind)
    signature = inspect.signature(function)
    try:
        signature.bind(**given, **parameters)
    except TypeError as problem:
        raise TraceError(f"{_place(function)}{problem}") from problem
    defaults = {
        name: parameter.default
        for name, parameter in signature.parameters.items()
        if name not in given and parameter.default is not parameter.empty
    }
    for name, value in {**defaults, **parameters}.items():
        given[name] = value
        if isinstance(value, float | np.floating):
            data = encode_constant(float(value))
            given[name] = tracer.source("parameter", name, (), "float", **data)
    try:
        outputs = function(**given)
        tracer.name_locals(())
    finally:
        tracer.frames.clear()  # they would keep every local variable of the kernel alive
    return replace(tracer.graph(_checked(outputs, function)), name=_words(function))


def _spec(name: str, value: Array) -> Spec:
    array = np.asarray(value)
    try:
        return Spec(array.shape, kind_of_dtype(array.dtype))
    except TypeError as problem:
        raise TraceError(f"input {name}: {problem}") from problem


def _checked(outputs: Any, function: Callable[..., Any]) -> Mapping[str, Symbol]:
    """Return the outputs. Raises TraceError unless they are a dict of traced values."""
    if not isinstance(outputs, dict) or not outputs:
        raise TraceError(
            f"{_place(function)}the function returns {type(outputs).__name__}"
            ' instead of a dict of outputs, such as {"y": y}'
        )
    for name, value in outputs.items():
        if not isinstance(name, str) or not isinstance(value, Symbol):
            raise TraceError(
                f"{_place(function)}output {name!r} is {type(value).__name__}:"
                " it has to be computed from the inputs"
            )
    return outputs


def _words(function: Callable[..., Any]) -> str:
    """Return a function's name in words; of a partial function those of the functions it takes."""
    if isinstance(function, partial):
        parts = [_words(part) for part in function.args if callable(part)]
        return ", ".join(parts) or _words(function.func)
    return getattr(function, "__name__", "").strip("_").replace("_", " ")


def _place(function: Callable[..., Any]) -> str:
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}: " if code is not None else ""

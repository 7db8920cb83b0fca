"""`gonogo.compare(kernel, ...)`: a test hands the arrays of a kernel over, to who takes them or to
be judged on the spot.

Standard library at import; NumPy when something is compared, the numerics only when it is judged
here. This file runs in other people's interpreters (Python 3.10 or newer), where the rest of gonogo
may be missing.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from typing import Any

from gonogo.public import recorded, tensors
from gonogo.public.recorded import Arrays

TENSORS = ("x", "dy", "gamma", "beta", "mean", "rstd", "y", "dx", "dgamma", "dbeta")
LAYERNORM = ("layernorm_fw", "layernorm_bw")
MODES = ("fail", "warn", "off")
"""The first is the default."""
MAX_NAME = 200


class ComparisonWarning(UserWarning):
    """A comparison that was judged on the spot isn't a plain pass, and the mode is `warn`; or
    rounding neither explains nor excludes it.
    """


_mode = MODES[0]


def set_mode(mode: str) -> None:
    """What a comparison on the spot does when it isn't a pass: one of MODES (the plug-in's option
    --gonogo-compare).
    """
    global _mode
    if mode not in MODES:
        raise ValueError(f"the mode must be one of {', '.join(MODES)}; got {mode!r}")
    _mode = mode


def compare(
    kernel: str,
    *,
    name: str | None = None,
    arithmetic: str | None = None,
    raw: Mapping[str, Any] | None = None,
    **given: Any,
) -> Any:
    """Have the arrays of one run of a kernel judged: is its error within the tolerance, and does
    rounding explain it?

    kernel: "layernorm_fw", "layernorm_bw", or another (docs/kernels.md). Tensors by name, of the
    test's shapes: x, dy, y, dx `shape`; gamma, beta, dgamma, dbeta `[N]`; mean, rstd `shape[:-1]`
    (inputs of layernorm_bw, outputs of layernorm_fw): NumPy arrays, anything NumPy can read, torch
    or ttnn tensors. The inputs are what the kernel was given: values that the input format can
    represent. Everything else is a field of the test (epsilon, numerics, tolerance, shape ...); the
    shape is that of x unless given. `name` tells several comparisons of one test apart. `arithmetic`
    is the arithmetic model of the kernel, unless the build has one. `raw` are unquantised inputs,
    with which the tolerance compares; an input that is only there was rounded to its format for the
    kernel.

    Where someone takes the arrays (recorded.take: the plug-in does, for a worker, which judges them
    in full) None is returned. Otherwise they are judged here: the judgement is returned when it is
    a pass; else an AssertionError with the numbers (mode `fail`), a ComparisonWarning (mode `warn`)
    or nothing (mode `off`). Raises TypeError for what is neither a tensor nor plain JSON.
    """
    __tracebackhide__ = True  # pytest shows the test's line
    names: tuple[str, ...] = TENSORS
    if (
        kernel not in LAYERNORM
    ):  # another kernel may have tensors of other names; which, only the one who judges knows
        names += tuple(
            name
            for name, value in given.items()
            if name not in TENSORS and len(getattr(value, "shape", ())) > 0
        )
    arrays = {
        tensor: _array(tensor, given.pop(tensor))
        for tensor in names
        if given.get(tensor) is not None
    }
    loose = {tensor: _array(tensor, value, wide=True) for tensor, value in (raw or {}).items()}
    fields = test_fields(
        kernel,
        {**loose, **arrays},
        {key: value for key, value in given.items() if value is not None},
    )
    shown = None if name is None else str(name)[:MAX_NAME]
    if recorded.handed_over(Arrays(fields, arrays, loose, shown, arithmetic)):
        return None
    return None if _mode == "off" else _judged(fields, arrays, loose, shown, arithmetic)


def _array(name: str, value: Any, *, wide: bool = False) -> Any:
    """Return the tensor as a C-contiguous array of float32 (wider values are rounded to it), or where
    `wide` values are kept of float64.
    """
    import numpy as np

    values = tensors.read(value, name).values
    return values if wide else values.astype(np.float32, copy=False)


def test_fields(kernel: str, arrays: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return the test's JSON; kernels that weren't given their statistics made their own."""
    for key, value in given.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as problem:
            known = ", ".join(TENSORS)
            raise TypeError(
                f"{key} is neither a tensor ({known}) nor a field of a test in plain JSON: {problem}"
            ) from problem
    fields = {"kernel": kernel, **given}
    if "shape" not in fields:
        if "x" not in arrays:
            raise TypeError("x is missing: without it, or a shape, nothing can be compared")
        fields["shape"] = list(arrays["x"].shape)
    numerics = dict(fields.get("numerics") or {})
    if kernel == "layernorm_bw" and "mean" not in arrays and "rstd" not in arrays:
        fields["numerics"] = {"statistics": "own", **numerics}
    return fields


def _judged(
    fields: dict[str, Any],
    arrays: dict[str, Any],
    loose: dict[str, Any],
    name: str | None,
    arithmetic: str | None,
) -> Any:
    __tracebackhide__ = True
    try:
        from gonogo.judging.comparison import judge_here
    except ImportError as problem:
        raise RuntimeError(
            f"gonogo.compare can't judge here ({problem}): install gonogo, run the test by a GoNoGo worker, or use --gonogo-compare=off"
        ) from problem
    try:
        judgement, words, serious, found = judge_here(fields, arrays, loose, arithmetic)
    except Exception as problem:
        recorded.tell(
            recorded.Comparison(name=name, problem=f"{type(problem).__name__}: {problem}")
        )
        raise
    recorded.tell(recorded.Comparison(name=name, arithmetic=arithmetic, **found))
    if words is None:
        return judgement
    message = f"{name}: {words}" if name else words
    if serious and _mode == "fail":
        raise AssertionError(message)
    warnings.warn(message, ComparisonWarning, stacklevel=4)
    return judgement

"""`gonogo.compare(kernel, ...)`: have a kernel's arrays judged, here or by a worker.

This module runs in other people's interpreters (Python 3.10 or newer), where the rest of gonogo may
be missing. It imports the standard library at first, NumPy when something is compared, and the
numerics only when a comparison is judged here.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from gonogo.public import arguments, recorded, tensors
from gonogo.public.recorded import Arrays

if TYPE_CHECKING:
    from gonogo.kernels.kernel import Kernel
    from gonogo.public.tensors import Tensor

__tracebackhide__ = True
"""pytest shows the test's line, and none of ours."""

TENSORS = ("x", "dy", "gamma", "beta", "mean", "rstd", "y", "dx", "dgamma", "dbeta")
LAYERNORM = ("layernorm_fw", "layernorm_bw")
BACKWARD = ("layernorm_bw", "rmsnorm_bw")
"""The kernels that may be given the statistics of their rows, where the registry is missing."""
MODES = ("fail", "warn", "off")
"""The possible reactions to a comparison that isn't a pass. The first is the default."""
HARMLESS = ("suspect", "inconclusive")
"""Verdicts that mean neither right nor wrong: one run warns of them and fails nothing."""
MAX_NAME = 200


class ComparisonWarning(UserWarning):
    """A comparison that was judged here isn't a plain pass.

    It is issued in the mode `warn`, and if rounding neither explains nor excludes the error.
    """


_mode = MODES[0]


def set_mode(mode: str) -> None:
    """Set what a comparison that was judged here does if it isn't a pass: one of MODES.

    It is the plug-in's option --gonogo-compare. Raises ValueError for another mode.
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
    """Judge the arrays of one run of a kernel.

    Is its error within the tolerance, and does rounding explain it?

    Args:
        kernel: "layernorm_fw", "layernorm_bw", or another kernel, also of an installed package
            (docs/own_kernel.md).
        name: a name that distinguishes several comparisons of one test.
        arithmetic: the arithmetic that the kernel declares (docs/verdicts.md), unless its build
            does.
        raw: unquantized inputs by name; the tolerance compares with their reference. An input that
            is only here was rounded to its format for the kernel.
        given: the kernel's tensors by name, and fields of the test. Tensors are NumPy arrays,
            anything that NumPy can read, torch or ttnn tensors. Their shapes are the test's: x, dy,
            y, dx have `shape`; gamma, beta, dgamma, dbeta `[N]`; mean, rstd `shape[:-1]` (inputs of
            layernorm_bw, outputs of layernorm_fw). Inputs must have the values that the kernel got,
            which the input format can represent. Fields of the test are epsilon, numerics,
            tolerance, shape and so on (docs/spec.md); the shape is x's by default.

    Returns:
        The judgement. None if the plug-in sends the arrays to a worker, which judges them in full,
        and None in the mode `off`.

    Raises:
        AssertionError: the judgement isn't a pass (mode `fail`). The mode `warn` issues a
            ComparisonWarning instead, also of the following.
        FieldError, JobError: the kernel is unknown, or a field or an input is wrong.
        TypeError: a value is neither a tensor nor plain JSON, or x is missing.
        RuntimeError: the numerics aren't installed here.
    """
    arguments.check_mappings(raw=raw)
    label = None if name is None else str(name)[:MAX_NAME]
    try:
        arrays = _arrays(kernel, raw, given, label, arithmetic)
        if recorded.handed_over(arrays) or _mode == "off":
            return None
        return _judged(arrays)
    except (AssertionError, ComparisonWarning):
        raise
    except Exception as problem:
        recorded.publish(recorded.Comparison(name=label, problem=in_words(problem)))
        if _mode == "fail":
            _show_only_the_test(problem)
            raise
        if _mode == "warn":
            warnings.warn(f"not judged: {in_words(problem)}", ComparisonWarning, stacklevel=3)
        return None


def _arrays(
    kernel: str,
    raw: Mapping[str, Any] | None,
    given: dict[str, Any],
    label: str | None,
    arithmetic: str | None,
) -> Arrays:
    """Return the tensors and the fields of a test among what `compare` was given."""
    names: tuple[str, ...] = TENSORS
    # Other kernels may have tensors of other names, which only the code that judges them knows.
    if kernel not in LAYERNORM:
        shaped = [name for name, value in given.items() if len(getattr(value, "shape", ())) > 0]
        names += tuple(name for name in shaped if name not in TENSORS)
    here = [name for name in names if given.get(name) is not None]
    arrays = {name: _array(name, given.pop(name)) for name in here}
    raw_arrays = {name: _array(name, value, wide=True) for name, value in (raw or {}).items()}
    others = {name: value for name, value in given.items() if value is not None}
    fields = test_fields(kernel, {**raw_arrays, **arrays}, others)
    return Arrays(fields, arrays, raw_arrays, label, arithmetic)


def _array(name: str, value: Any, *, wide: bool = False) -> Any:
    """Return the tensor as a C-contiguous array of float32, rounded to it if wider."""
    import numpy as np

    values = tensors.read_for_kernel(value, name).values
    return values if wide else values.astype(np.float32, copy=False)


def test_fields(kernel: str, arrays: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return the test's JSON. A kernel without statistics among its inputs computes its own.

    Raises TypeError for a value that is neither a tensor nor plain JSON, or if x is missing.
    """
    for key, value in given.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as problem:
            neither = f"neither a tensor ({', '.join(TENSORS)}) nor a field of a test in plain JSON"
            raise TypeError(f"{key} is {neither}: {problem}") from problem
    _check_tensors(kernel, arrays)
    arguments.check_mappings(numerics=given.get("numerics"))
    fields = {"kernel": kernel, **given}
    if "shape" not in fields:
        one = known_kernel(kernel)
        first = "x" if one is None else one.inputs[0]
        if first not in arrays:
            reason = "is missing: without it, or a shape, nothing can be compared"
            raise TypeError(f"{first} {reason}")
        fields["shape"] = list(arrays[first].shape)
    numerics = dict(fields.get("numerics") or {})
    statistics = _given_statistics(kernel)
    if statistics and not statistics & arrays.keys():
        fields["numerics"] = {"statistics": "own", **numerics}
    return fields


def with_formats(kernel: str, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors that have a format: a kernel's whole numbers have none in any dtype."""
    one = known_kernel(kernel)
    return {name: tensor for name, tensor in given.items() if one is None or name not in one.whole}


def _check_tensors(kernel: str, names: Iterable[str]) -> None:
    """Raise FieldError for a tensor that the kernel doesn't have, such as torch's `weight`."""
    known = known_kernel(kernel)
    if known is None:
        return
    from gonogo.errors import FieldError
    from gonogo.fields import did_you_mean

    inputs = tuple(dict.fromkeys((*known.drawn, *known.inputs)))
    tensors_ = (*inputs, *known.outputs, *known.downstream)
    for name in names:
        if name not in tensors_:
            reason = f"isn't a tensor of {kernel}{did_you_mean(name, tensors_)}"
            limit = f"inputs {', '.join(inputs)}; outputs {', '.join(known.outputs)}"
            raise FieldError(name, name, reason, limit=limit)


def known_kernel(name: object) -> Kernel | None:
    """Return the kernel of that name, also of an installed package.

    None if nobody has it, or where the registry is missing. Raises FieldError for a package that
    can't be loaded. The user of this process names the kernel, so that loading it is their wish.
    """
    try:
        from gonogo.kernels.registry import KERNELS, allow_installed
    except ImportError:
        return None
    allow_installed()
    return KERNELS.get(name) if isinstance(name, str) else None


def _given_statistics(kernel: str) -> set[str]:
    """Return the inputs that a kernel may be given, or compute itself: mean and rstd."""
    known = known_kernel(kernel)
    if known is not None:
        return set(known.inputs) - set(known.drawn)
    return {"mean", "rstd"} if kernel in BACKWARD else set()


def in_words(problem: Exception) -> str:
    """Return the message of an error, as gonogo.errors has it where it is installed."""
    try:
        from gonogo import errors
    except ImportError:
        return f"{type(problem).__name__}: {problem}"
    return errors.in_words(problem)


def _show_only_the_test(problem: Exception) -> None:
    """Leave the frames of an error that its message explains out of the traceback."""
    if isinstance(problem, TypeError | ValueError) or type(problem).__module__ == "gonogo.errors":
        problem.__traceback__, problem.__cause__ = None, None
        problem.__suppress_context__ = True


def _judged(given: Arrays) -> Any:
    try:
        from gonogo.judging import comparison
    except ImportError as problem:
        raise RuntimeError(
            f"gonogo.compare can't judge here ({problem}): install gonogo, run the test by a GoNoGo"
            " worker, or use --gonogo-compare=off"
        ) from problem
    case = comparison.case_of_test(given.fields, given.tensors, given.raw, given.arithmetic)
    judgement = case.judge()
    record = comparison.record_of(case, judgement)
    recorded.publish(recorded.Comparison(name=given.name, arithmetic=given.arithmetic, **record))
    if judgement.verdict == "pass":
        return judgement
    message = f"{given.name}: {record['words']}" if given.name else record["words"]
    if judgement.verdict not in HARMLESS and _mode == "fail":
        raise AssertionError(message)
    warnings.warn(message, ComparisonWarning, stacklevel=4)
    return judgement

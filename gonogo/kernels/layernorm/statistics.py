"""LayerNorm's statistics by the fused path."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.kind import Arrays
from gonogo.kernels.layernorm import reference
from gonogo.kernels.layernorm.arithmetic import backward_terms, forward_terms, given_moments
from gonogo.kernels.layernorm.fused import backward as fused_backward
from gonogo.kernels.layernorm.fused import forward as fused_forward
from gonogo.numerics import compare
from gonogo.numerics.expectation import Array, Mask
from gonogo.numerics.jit import plain

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

Definition = Callable[
    ["TestSpec", Arrays, Arrays, Mapping[str, NDArray[np.float32]], str | None], dict[str, Any]
]
"""kind.Numerics.statistics of a kernel."""

MATRICES = ("y", "dx")
"""The outputs that have rows, for the fused path.

The others are one row and are compared by the definition.
"""


def statistics_fused(
    test: TestSpec,
    raw: Arrays,
    given: Arrays,
    outputs: Mapping[str, NDArray[np.float32]],
    arithmetic: str | None,
    definition: Definition,
) -> dict[str, Any]:
    """Return LayerNorm's statistics by the fused path where it works, else by `definition`.

    It needs numba, and an output that has no block format. Outputs are matrices (see
    judging.matrix).
    """
    broken = {
        name: compare.finite_rows(output)
        for name, output in outputs.items()
        if name in MATRICES and not np.isfinite(output).all()
    }
    results = _fused(
        test,
        raw,
        given,
        {name: output for name, output in outputs.items() if name not in broken},
        arithmetic,
    )
    for name, keep in broken.items():
        output = outputs[name]
        if output.shape[0] == 1 or not keep.any():
            results |= definition(test, raw, given, {name: output}, arithmetic)
            continue
        rows = _fused(
            test,
            _some(raw, keep),
            _some(given, keep),
            {name: np.ascontiguousarray(output[keep])},
            arithmetic,
        )[name]
        whole = {
            "count": int(output.size),
            "digest": compare.digest(output, _shape(name, output)),
            **compare.nonfinite(output),
        }
        results[name] = rows | whole
    return {name: results[name] for name in outputs}


def _fused(
    test: TestSpec,
    raw: Arrays,
    given: Arrays,
    outputs: Mapping[str, NDArray[np.float32]],
    arithmetic: str | None,
) -> dict[str, Any]:
    if not outputs:
        return {}
    raw, given, outputs = (
        {name: plain(array) for name, array in arrays.items()} for arrays in (raw, given, outputs)
    )
    if test.kernel == "layernorm_fw":
        fused = fused_forward.statistics(
            raw, given, test.epsilon, outputs, forward_terms(test, arithmetic), _allclose(test)
        )
    else:
        terms = backward_terms(test, arithmetic)
        known = given_moments(given, test.epsilon, terms)
        fused = fused_backward.statistics(
            raw, given, known, _moments(raw, test.epsilon), outputs, terms, _allclose(test)
        )
    digests = {
        name: {"digest": compare.digest(output, _shape(name, output))}
        for name, output in outputs.items()
    }
    return {name: compare.storable(fused[name] | digests[name]) for name in outputs}


def _some(arrays: Arrays, keep: Mask) -> dict[str, NDArray[Any]]:
    """Return some rows of x, dy, mean and rstd, and gamma and beta whole."""
    return {
        name: a if name in ("gamma", "beta") else np.ascontiguousarray(a[keep])
        for name, a in arrays.items()
    }


def _moments(arrays: Arrays, epsilon: float) -> tuple[Array, Array]:
    if "mean" in arrays:
        return np.asarray(arrays["mean"], np.float64), np.asarray(arrays["rstd"], np.float64)
    return reference.moments(arrays["x"], epsilon)


def _allclose(test: TestSpec) -> dict[str, tuple[float, float] | None]:
    return {
        name: tolerance.allclose if (tolerance := test.tolerance_for(name)) is not None else None
        for name in test.outputs
    }


def _shape(name: str, output: NDArray[np.float32]) -> tuple[int, ...]:
    return output.shape if name in MATRICES else output.shape[1:]

"""Emulated Wormhole kernels: `run` runs a named build of a test, `ideal` the same logic unrounded.

`plan` holds the switches. gonogo.numerics.tensix has the hardware primitives, in NumPy (the
definition) and compiled. `backward` and `forward` are the dataflows, `loops` their compiled
versions, `defects` the builds, and `logic` the builds without rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.layernorm.emulation import logic
from gonogo.kernels.layernorm.emulation.backward import Operands as BackwardOperands
from gonogo.kernels.layernorm.emulation.backward import backward as backward_kernel
from gonogo.kernels.layernorm.emulation.defects import DEFECTS, Defect
from gonogo.kernels.layernorm.emulation.forward import Operands as ForwardOperands
from gonogo.kernels.layernorm.emulation.forward import Sums, stored_moments
from gonogo.kernels.layernorm.emulation.forward import forward as forward_kernel
from gonogo.kernels.layernorm.emulation.plan import TILE, Machine, Plan, takes_block_path
from gonogo.kernels.layernorm.emulation.spoil import REGISTER, hang_or_crash, spoil
from gonogo.kernels.layernorm.reference import reference

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

__all__ = ["DEFECTS", "Defect", "ideal", "run", "takes_block_path"]

Array = NDArray[np.float32]
CLEAR = np.zeros(TILE, dtype=np.float32)
"""The accumulator's 32 lanes before a sum."""
Number = TypeVar("Number", np.float32, np.float64)


def run(
    test: TestSpec,
    given: Mapping[str, Array],
    build: str,
    *,
    seed: int = 0,
    position: int = 0,
    compiled: bool | None = None,
) -> dict[str, Array]:
    """Return the outputs of the emulated kernel of that build.

    Args:
        test: kernel, shape, numerics, epsilon.
        given: the inputs of the device, float32 arrays that the input formats can represent: x and
            dy
            (rows, N) or of test.shape, gamma and beta (N,), mean and rstd (rows,) or
            test.shape[:-1], or absent (statistics: own).
        build: a name in DEFECTS.
        seed: the seed of the inputs. No build depends on it (`power-of-two-outliers` takes its
            places
            from x).
        position: how many runs came before in this process. Only `stale-register` uses it: the
            register
            is clear at 0, and later holds what the previous run left, whichever build it was.
        compiled: True for the compiled loops, False for the NumPy definition, None for the faster
            that
            supports the numerics.

    Returns:
        float32 arrays: y, dx in x's shape; mean, rstd in its leading shape; dgamma, dbeta (N,).

    Raises:
        KeyError: no such build, or a tensor is missing.
    """
    plan = DEFECTS[build].plan_for(test.kernel)
    if plan.fate is not None:
        hang_or_crash(plan.fate)
    machine = Machine.of(test, plan)
    fast = machine.compiled if compiled is None else compiled
    shape = given["x"].shape
    rows = _as_rows(given)
    stale = REGISTER.lanes() if plan.stale and position > 0 else CLEAR
    if test.kernel == "layernorm_fw":
        outputs = forward_kernel(
            ForwardOperands.of(rows, test.epsilon, plan, machine, stale),
            plan,
            machine,
            compiled=fast,
        )
        first = "y"
    else:
        if "mean" not in rows:
            sums = Sums.of(rows["x"].shape[1], test.epsilon, plan.statistics_only(), CLEAR)
            rows["mean"], rows["rstd"] = stored_moments(rows["x"], sums, machine)
        outputs = backward_kernel(
            BackwardOperands.of(rows, plan, machine, stale), plan, machine, compiled=fast
        )
        first = "dx"
    REGISTER.leave(outputs[first])
    outputs[first] = spoil(outputs[first], rows["x"], plan)
    return _shaped(outputs, shape)


def ideal(
    test: TestSpec, given: Mapping[str, NDArray[np.floating]], build: str
) -> dict[str, NDArray[np.float64]]:
    """Return the float64 function of that build's logic, unrounded.

    It is the quantized reference for `correct`, and for every build without a numerical fault of
    logic (bf16-accumulate, hang, crash). `given` is as in `run`; outputs are (rows, N), (rows,) and
    (N,). The distance from the reference says whether a defect can show with these inputs. Where a
    NaN tile is planted, it is NaN.
    """
    plan = DEFECTS[build].plan_for(test.kernel)
    rows = _as_rows({name: np.asarray(a, dtype=np.float64) for name, a in given.items()})
    if plan.logic() == Plan():
        return reference(test, rows)
    if test.kernel == "layernorm_fw":
        outputs, first = logic.forward(rows, test.epsilon, plan), "y"
    else:
        outputs, first = logic.backward(rows, test.epsilon, plan), "dx"
    outputs[first] = spoil(
        outputs[first], np.asarray(given["x"], dtype=np.float32).reshape(rows["x"].shape), plan
    )
    return outputs


def _as_rows(given: Mapping[str, NDArray[Number]]) -> dict[str, NDArray[Number]]:
    """Fold the leading dimensions of the tensors: x, dy (rows, N); the others flat."""
    return {
        name: a.reshape(-1, a.shape[-1]) if name in ("x", "dy") else a.reshape(-1)
        for name, a in given.items()
    }


def _shaped(outputs: dict[str, Array], shape: tuple[int, ...]) -> dict[str, Array]:
    shapes = {"y": shape, "dx": shape, "mean": shape[:-1], "rstd": shape[:-1]}
    return {name: a.reshape(shapes.get(name, a.shape)) for name, a in outputs.items()}

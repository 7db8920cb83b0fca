"""Emulated Wormhole kernels: `run` runs a named build of a test, `ideal` the same logic unrounded.

gonogo.kernels.normalization.emulation has the dataflows and their steps. Here are the builds
(`defects`) and the compiled version of the backward dataflow (`loops`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.layernorm.emulation.defects import DEFECTS, Defect
from gonogo.kernels.layernorm.emulation.loops import compiled_block
from gonogo.kernels.layernorm.reference import reference
from gonogo.kernels.normalization.emulation import backward
from gonogo.kernels.normalization.emulation.backward import Gradients
from gonogo.kernels.normalization.emulation.forward import (
    Rows,
    emulate,
    exact,
    moments,
    stored_moments,
)
from gonogo.kernels.normalization.emulation.logic import TILE, Logic
from gonogo.kernels.normalization.emulation.machine import Machine
from gonogo.kernels.normalization.emulation.spoil import hang_or_crash
from gonogo.kernels.normalization.emulation.steps import Exact, Values
from gonogo.numerics.tensix import arithmetic as wh

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

__all__ = ["DEFECTS", "Defect", "ideal", "run"]

Array = NDArray[np.float32]
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
            dy (rows, N) or of test.shape, gamma and beta (N,), mean and rstd (rows,) or
            test.shape[:-1], or absent (statistics: own).
        build: a name in DEFECTS.
        seed: the seed of the inputs. No build depends on it (`power-of-two-outliers` takes its
            places from x).
        position: how many runs came before in this process. Only `stale-register` uses it: the
            register is clear at 0, and later holds what the previous run left, whichever build it
            was.
        compiled: True for the compiled loops, False for the NumPy definition, None for the faster
            that supports the numerics.

    Returns:
        float32 arrays: y, dx in x's shape; mean, rstd in its leading shape; dgamma, dbeta (N,).

    Raises:
        KeyError: no such build, or a tensor is missing.
    """
    logic, shape = DEFECTS[build].logic_on(test.kernel), given["x"].shape
    rows = _as_rows(given)
    if test.kernel == "layernorm_fw":
        y, mean, rstd = emulate(
            test, _forward(rows, logic), logic, position, columns_in_srcb=False, compiled=compiled
        )
        return _shaped({"y": y, "mean": mean, "rstd": rstd}, shape)
    if logic.fate is not None:
        hang_or_crash(logic.fate)
    machine = Machine.of(test, logic.narrow_sums)
    if "mean" not in rows:
        rows["mean"], rows["rstd"] = stored_moments(
            rows["x"], test.epsilon, logic.statistics_only(), machine
        )
    mean = wh.read_source(rows["mean"], machine.reads_bf16("mean", "x"))
    gradients = Gradients(
        rows["x"],
        rows["dy"],
        wh.read_source(logic.gamma(rows["gamma"]), machine.reads_bf16("gamma", "dy")),
        mean if logic.subtracted == "mean" else np.zeros_like(mean),
        wh.read_source(rows["rstd"], machine.narrow),
    )
    is_compiled = machine.compiled if compiled is None else compiled
    loop = compiled_block if is_compiled else None
    return _shaped(backward.emulate(machine, gradients, logic, position, loop), shape)


def _forward(given: Mapping[str, Values], logic: Logic) -> Rows:
    """Return the input of the forward dataflow."""
    return Rows(
        given["x"], given["x"], logic.gamma(given["gamma"])[None, :], given["beta"][None, :]
    )


def ideal(
    test: TestSpec, given: Mapping[str, NDArray[np.floating]], build: str
) -> dict[str, NDArray[np.float64]]:
    """Return the float64 function of that build's logic, unrounded.

    It is the quantized reference for `correct`, and for every build without a numerical fault of
    logic (bf16-accumulate, hang, crash). `given` is as in `run`; outputs are (rows, N), (rows,) and
    (N,). The distance from the reference says whether a defect can show with these inputs. Where a
    NaN tile is planted, it is NaN.
    """
    logic = DEFECTS[build].logic_on(test.kernel)
    rows = _as_rows({name: np.asarray(a, dtype=np.float64) for name, a in given.items()})
    if logic.exact() == Logic():
        return reference(test, rows)
    if test.kernel == "layernorm_fw":
        y, mean, rstd = exact(test.epsilon, _forward(rows, logic), logic)
        return {"y": y, "mean": mean, "rstd": rstd}
    x = rows["x"]
    if "mean" not in rows:
        statistics = moments(Exact(), x, test.epsilon, logic.statistics_only(), np.zeros(TILE))
        rows["mean"], _, rows["rstd"] = statistics
    subtracted = rows["mean"] if logic.subtracted == "mean" else None
    gradients = Gradients(x, rows["dy"], logic.gamma(rows["gamma"]), subtracted, rows["rstd"])
    return backward.exact(gradients, logic)


def _as_rows(given: Mapping[str, NDArray[Number]]) -> dict[str, NDArray[Number]]:
    """Fold the leading dimensions of the tensors: x, dy (rows, N); the others flat."""
    return {
        name: a.reshape(-1, a.shape[-1]) if name in ("x", "dy") else a.reshape(-1)
        for name, a in given.items()
    }


def _shaped(outputs: dict[str, Array], shape: tuple[int, ...]) -> dict[str, Array]:
    shapes = {"y": shape, "dx": shape, "mean": shape[:-1], "rstd": shape[:-1]}
    return {name: a.reshape(shapes.get(name, a.shape)) for name, a in outputs.items()}

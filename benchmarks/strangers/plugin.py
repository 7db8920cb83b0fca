"""The strangers as executors.

Builds: `right:NAME`, and `wrong:KERNEL:FAULT:BASE` with one of the arithmetics of rights.BASES.
`clean:KERNEL:FAULT:BASE` is the same kernel with the same chance and without the fault.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.strangers.arithmetic import Arithmetic, Work
from benchmarks.strangers.faults import Fault
from benchmarks.strangers.kernels import backward, forward
from benchmarks.strangers.rights import BASES, RIGHTS
from benchmarks.strangers.wrongs import WRONGS

BY_NAME = {base.name: base for base in BASES}


class Stranger:
    """One of them, by the name of its build."""

    def __init__(self, build: str) -> None:
        kind, _, rest = build.partition(":")
        self.fault: Fault | None = None
        self.arithmetic: Arithmetic
        try:
            if kind == "right":
                self.arithmetic = BY_NAME[rest] if rest in BY_NAME else RIGHTS[rest].arithmetic
            else:
                kernel, name, base = rest.split(":")
                self.arithmetic = BY_NAME[base]
                self.fault = {"wrong": WRONGS[kernel, name], "clean": None}[kind]
        except (KeyError, ValueError):
            raise ValueError(f"unknown build {build!r}") from None
        self.chance = zlib.crc32(rest.encode())
        self.runs = 0
        self.memory: dict[str, Any] = {}

    def run(self, test: dict[str, Any], inputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The outputs, in the shapes of the contract (docs/executors.md)."""
        numerics = test.get("numerics", {})
        given = numerics.get("input", "bf16")
        wide = given == "fp32"
        work = Work(
            self.arithmetic,
            buffer=self.arithmetic.buffer
            if self.arithmetic.buffer != "buffers"
            else buffers_of(test),
            result=numerics.get("output", "bf16"),
            chance=np.random.default_rng([self.chance, self.runs, int(wide)]),
            run=self.runs,
            alterations=self.fault.alterations if self.fault else {},
            order=self.fault.order if self.fault else None,
            memory=self.memory,
        )
        self.runs += 1
        shape = inputs["x"].shape
        x = inputs["x"].reshape(-1, shape[-1])
        epsilon = test.get("epsilon", 1e-6)
        with np.errstate(all="ignore"):  # a fault may divide by zero or overflow
            if test["kernel"] == "layernorm_fw":
                outputs = forward(work, x, inputs["gamma"], inputs["beta"], epsilon)
            else:
                statistics = (
                    (inputs["mean"].reshape(-1), inputs["rstd"].reshape(-1))
                    if "mean" in inputs
                    else None
                )
                outputs = backward(
                    work, x, inputs["gamma"], inputs["dy"].reshape(x.shape), epsilon, statistics
                )
        shapes = {"y": shape, "dx": shape, "mean": shape[:-1], "rstd": shape[:-1]}
        return {
            name: np.ascontiguousarray(value.reshape(shapes.get(name, shape[-1:])))
            for name, value in outputs.items()
        }


def buffers_of(test: dict[str, Any]) -> str:
    """Return the format in which a kernel of this test may store its intermediates.

    An fp32 test's are read back as TF32 on tensor cores.
    """
    numerics = test.get("numerics", {})
    declared: str = numerics.get("buffers", "bf16")
    return "tf32" if declared == "bf16" and numerics.get("input") == "fp32" else declared

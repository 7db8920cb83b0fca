"""Seeded cases for the tests of the numerics: a spec, its arrays, and regimes and formats that are
hard on rounding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo import emulator
from gonogo.arithmetic.formats import round_to
from gonogo.judging.inputs import generate, quantise
from gonogo.judging.judging import matrix
from gonogo.spec.test_spec import TestSpec
from gonogo.workloads import exact_outputs

KERNELS = ("layernorm_bw", "layernorm_fw")

REGIMES: Mapping[str, Mapping[str, Any]] = {
    "uniform": {"regime": "uniform", "low": -1, "high": 1},
    "normal": {"regime": "normal", "mean": 0, "std": 1},
    "small": {"regime": "normal", "mean": 0, "std": 1e-3},
    "offset": {"regime": "offset", "offset": 10, "std": 1},
    "narrow offset": {"regime": "offset", "offset": -3, "std": 0.05},
    "ramp": {"regime": "ramp", "low": -1, "high": 1},
    "narrow ramp": {"regime": "ramp", "low": 1, "high": 1.01},
    "hot tile": {"regime": "hot_tile", "tile": 0, "value": 8},
    "constant": {"regime": "constant", "value": 0.5},
}


def spec(
    kernel: str = "layernorm_bw", shape: tuple[int, ...] = (40, 100), **fields: Any
) -> TestSpec:
    """A test in short form; `regime` is a name in REGIMES."""
    if "regime" in fields:
        fields["inputs"] = dict(REGIMES[fields.pop("regime")])
    return TestSpec.parse({"kernel": kernel, "shape": list(shape), **fields})


MAX_SHARED = 2**16
"""Elements of a tensor up to which several cases share its draw."""

Arrays = dict[str, NDArray[Any]]


def _drawn(test: TestSpec, seed: int) -> tuple[Arrays, Arrays]:
    """Return the raw inputs, and as the kernel gets them."""
    raw = generate(test, seed)
    return raw, quantise(test, raw)


_drawn_once = lru_cache(maxsize=64)(_drawn)


def copied(arrays: Arrays) -> Arrays:
    """Return copies of arrays, which a test may change."""
    return {name: array.copy() for name, array in arrays.items()}


@dataclass(frozen=True)
class Case:
    """A test and the arrays of one of its seeds."""

    test: TestSpec
    seed: int
    raw: dict[str, NDArray[Any]]
    given: dict[str, NDArray[np.float32]]

    @classmethod
    def of(cls, test: TestSpec, seed: int = 0) -> Case:
        if test.rows * test.features > MAX_SHARED:
            return cls(test, seed, *_drawn(test, seed))
        raw, given = _drawn_once(test, seed)
        return cls(test, seed, copied(raw), copied(given))

    def emulated(self, build: str = "correct") -> dict[str, NDArray[np.float32]]:
        """Run the emulated build; return its outputs in the kernel's own shapes."""
        return emulator.run(self.test, self.given, build)

    def matrices(self, outputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.float32]]:
        """The outputs as the numerics take them: (rows, N), or one row."""
        return {name: matrix(self.test, name, outputs) for name in outputs}


def perfect(test: TestSpec, given: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.float32]]:
    """Return the float64 function of what a kernel is given, rounded once: none is better."""
    form = test.numerics.output
    return {
        name: round_to(values, form).astype(np.float32).reshape(test.shape_of(name))
        for name, values in exact_outputs(test, given).items()
    }

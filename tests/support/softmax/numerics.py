"""The toy's numerics: what the smallest kind writes, and no more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.kind import EVERYTHING, Arrays, Fault, Floats, Numerics
from gonogo.kernels.layernorm.arithmetic.terms import UNIT_ROUNDOFF
from gonogo.numerics.expectation import Array, Direction, Expectation, Shared, output_step
from gonogo.numerics.formats import round_to
from gonogo.spec.test_spec import TestSpec

FP32 = 2.0**-24


def softmax(x: NDArray[Any], temperature: float, tiles: slice = EVERYTHING) -> NDArray[Any]:
    """exp(x / T - max) over its sum; in x's own precision."""
    scaled = x / x.dtype.type(temperature)
    powers = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    return np.asarray(powers / powers[:, tiles].sum(axis=1, keepdims=True))


class Softmax(Numerics):
    """y = exp(x / T - max) / sum: fp32 inside, rounded once."""

    faults: Mapping[str, Fault] = {
        "correct": Fault("correct", "The right kernel.", gauge=False),
        "last-tile-only": Fault(
            "last-tile-only", "The sum takes only the row's last 32 elements.", ("y",)
        ),
        "temperature-ignored": Fault(
            "temperature-ignored", "x isn't divided by the temperature.", ("y",)
        ),
    }

    def reference(self, test: TestSpec, arrays: Arrays) -> dict[str, Array]:
        return {"y": softmax(np.asarray(arrays["x"], np.float64), test.parameter("temperature"))}

    def expectations(
        self, test: TestSpec, given: Arrays, arithmetic: str | None, rows: slice = EVERYTHING
    ) -> dict[str, Expectation]:
        """Relative errors: u (2 |x|/T + 4) of the exponent, u min(n, 1024) of the sum, shared by
        the row; then one rounding."""
        x = np.asarray(given["x"][rows], np.float64)
        y = softmax(x, test.parameter("temperature"))
        unit = UNIT_ROUNDOFF[test.numerics.output]
        largest = np.abs(x).max(axis=1, keepdims=True) / test.parameter("temperature")
        per_element, common = FP32 * (4 * largest + 4), FP32 * min(test.features, 1024)
        before = (per_element + common) * y
        step = output_step(y + before, unit, False)
        return {
            "y": Expectation(
                reference=y,
                bound=before + step,
                noise=(per_element * y) ** 2 + step**2 / 3,
                out=unit,
                shared=(Shared(np.full((len(y), 1), common**2), y),),
                directions=(Direction("scale", y), Direction("row", np.ones_like(y))),
            )
        }

    def run(
        self,
        test: TestSpec,
        given: Mapping[str, Floats],
        build: str,
        *,
        seed: int = 0,
        position: int = 0,
    ) -> dict[str, Floats]:
        return {
            "y": round_to(
                self._logic(test, np.asarray(given["x"], np.float32), build), test.numerics.output
            )
        }

    def ideal(self, test: TestSpec, given: Arrays, build: str) -> dict[str, Array]:
        return {"y": self._logic(test, np.asarray(given["x"], np.float64), build)}

    def _logic(self, test: TestSpec, x: NDArray[Any], build: str) -> NDArray[Any]:
        self.faults[build]
        temperature = 1.0 if build == "temperature-ignored" else test.parameter("temperature")
        return softmax(
            x, temperature, slice(-32, None) if build == "last-tile-only" else EVERYTHING
        )


NUMERICS = {"softmax_fw": Softmax()}

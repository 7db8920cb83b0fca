"""Right kernels of many arithmetics: what a budget must explain.

Each takes (test, given) and gives the outputs, as an executor would.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels import registry
from gonogo.kernels.groupnorm.budget import spread
from gonogo.numerics.formats import round_to
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import Explanation, Statistics, explain, worst_explanation

Arrays = dict[str, NDArray[np.float32]]
Given = Mapping[str, NDArray[Any]]
Rounding = Callable[[NDArray[Any]], NDArray[Any]]
Sum = Callable[[NDArray[Any]], NDArray[Any]]


def _fp32(a: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(a, np.float32)


def _bf16_even(a: NDArray[Any]) -> NDArray[Any]:
    return round_to(np.asarray(a, np.float32), "bf16")


def _bf16_away(a: NDArray[Any]) -> NDArray[Any]:
    return round_to(np.asarray(a, np.float32), "bf16", "away")


def pairwise(a: NDArray[Any]) -> NDArray[Any]:
    """NumPy's sum of the last axis, in the array's own precision."""
    return np.asarray(a.sum(axis=-1, keepdims=True, dtype=a.dtype))


def in_order(a: NDArray[Any]) -> NDArray[Any]:
    """One addition after the other."""
    return np.cumsum(a, axis=-1, dtype=a.dtype)[..., -1:]


def backwards(a: NDArray[Any]) -> NDArray[Any]:
    """From the last to the first."""
    return in_order(a[..., ::-1])


def by_lanes(a: NDArray[Any]) -> NDArray[Any]:
    """32 lanes over the tiles, then the lanes."""
    n = a.shape[-1]
    padded = np.zeros((*a.shape[:-1], -(-n // 32) * 32), a.dtype)
    padded[..., :n] = a
    lanes = np.cumsum(padded.reshape(*a.shape[:-1], -1, 32), axis=-2, dtype=a.dtype)[..., -1, :]
    return in_order(lanes)


@dataclass(frozen=True)
class Arithmetic:
    """An arithmetic: rounding of stored and of inner values, order of sums, and how 1/N is made."""

    stored: Rounding
    inside: Rounding
    sum: Sum
    truncated_reciprocal: bool = False

    def mean(self, a: NDArray[Any]) -> NDArray[Any]:
        """Mean of the last axis, stored."""
        total = self.sum(self.inside(a))
        n = a.shape[-1]
        if self.truncated_reciprocal:
            return self.stored(self.inside(total * round_to(np.float32(1 / n), "bf16", "zero")))
        return self.stored(self.inside(total / n))

    def statistics(self, x: NDArray[Any], epsilon: float) -> tuple[NDArray[Any], NDArray[Any]]:
        """Mean and rstd, (rows, 1), two passes."""
        mean = self.mean(x)
        variance = self.mean(self.stored(self.inside(self.inside(x - mean) ** 2)))
        return mean, self.stored(self.inside(1 / np.sqrt(self.inside(variance + epsilon))))

    def forward(self, test: TestSpec, given: Given) -> Arrays:
        """layernorm_fw."""
        s, i = self.stored, self.inside
        x = i(given["x"].astype(np.float64))
        mean, rstd = self.statistics(x, test.epsilon)
        xhat = s(i(i(x - mean) * rstd))
        y = i(
            s(i(xhat * i(given["gamma"].astype(np.float64)))) + i(given["beta"].astype(np.float64))
        )
        return put_out(test, {"y": y, "mean": mean[:, 0], "rstd": rstd[:, 0]})

    def rmsnorm(self, test: TestSpec, given: Given) -> Arrays:
        """rmsnorm_fw."""
        s, i = self.stored, self.inside
        x, gamma = (i(given[name].astype(np.float64)) for name in ("x", "gamma"))
        square = self.mean(s(i(x**2)))
        rstd = s(i(1 / np.sqrt(i(square + test.epsilon))))
        return put_out(test, {"y": i(s(i(x * rstd)) * gamma), "rstd": rstd[:, 0]})

    def groupnorm(self, test: TestSpec, given: Given) -> Arrays:
        """groupnorm_fw: the forward pass of LayerNorm with a gamma and beta of each element."""
        return self.forward(
            test,
            {"x": given["x"], **{name: spread(test, given[name]) for name in ("gamma", "beta")}},
        )

    def backward(self, test: TestSpec, given: Given) -> Arrays:
        """layernorm_bw."""
        s, i = self.stored, self.inside
        x, dy, gamma = (i(given[name].astype(np.float64)) for name in ("x", "dy", "gamma"))
        if "mean" in given:
            mean, rstd = (
                i(given["mean"].astype(np.float64))[:, None],
                i(given["rstd"].astype(np.float64))[:, None],
            )
        else:
            mean, rstd = self.statistics(x, test.epsilon)
        xhat = s(i(i(x - mean) * rstd))
        p = s(i(dy * gamma))
        s1, s2 = self.mean(p), self.mean(s(i(p * xhat)))
        dx = i(s(i(s(i(p - s1)) - s(i(xhat * s2)))) * rstd)
        dgamma = self.sum(np.ascontiguousarray(s(i(dy * xhat)).T))[:, 0]
        dbeta = self.sum(np.ascontiguousarray(dy.T))[:, 0]
        return put_out(test, {"dx": dx, "dgamma": dgamma, "dbeta": dbeta})

    def rmsnorm_backward(self, test: TestSpec, given: Given) -> Arrays:
        """rmsnorm_bw."""
        s, i = self.stored, self.inside
        x, dy, gamma = (i(given[name].astype(np.float64)) for name in ("x", "dy", "gamma"))
        if "rstd" in given:
            rstd = i(given["rstd"].astype(np.float64))[:, None]
        else:
            rstd = s(i(1 / np.sqrt(i(self.mean(s(i(x**2))) + test.epsilon))))
        xhat = s(i(x * rstd))
        p = s(i(dy * gamma))
        s2 = self.mean(s(i(p * xhat)))
        dx = i(s(i(p - s(i(xhat * s2)))) * rstd)
        dgamma = self.sum(np.ascontiguousarray(s(i(dy * xhat)).T))[:, 0]
        return put_out(test, {"dx": dx, "dgamma": dgamma})

    def __call__(self, test: TestSpec, given: Given) -> Arrays:
        """The test's kernel."""
        kinds = {
            "layernorm_fw": self.forward,
            "layernorm_bw": self.backward,
            "rmsnorm_fw": self.rmsnorm,
            "rmsnorm_bw": self.rmsnorm_backward,
            "groupnorm_fw": self.groupnorm,
        }
        return kinds[test.kernel](test, given)


def put_out(test: TestSpec, outputs: Mapping[str, NDArray[Any]]) -> Arrays:
    """Rounded to the test's output format."""
    return {
        name: round_to(np.asarray(value, np.float32), test.numerics.output)
        for name, value in outputs.items()
    }


def perfect(test: TestSpec, given: Given) -> Arrays:
    """The quantised reference, rounded once."""
    return put_out(test, registry.numerics(test).reference(test, given))


def welford(test: TestSpec, given: Given) -> Arrays:
    """Running mean and variance in fp32 (layernorm_fw, groupnorm_fw)."""
    gamma, beta = given["gamma"], given["beta"]
    if test.kernel == "groupnorm_fw":
        gamma, beta = spread(test, gamma), spread(test, beta)
    x = given["x"].astype(np.float32)
    mean = np.zeros((x.shape[0], 1), np.float32)
    squares = np.zeros_like(mean)
    for j in range(x.shape[1]):
        delta = x[:, j : j + 1] - mean
        mean = mean + delta / np.float32(j + 1)
        squares = squares + delta * (x[:, j : j + 1] - mean)
    rstd = np.float32(1) / np.sqrt(squares / np.float32(x.shape[1]) + np.float32(test.epsilon))
    y = (x - mean) * rstd * gamma.astype(np.float32) + beta.astype(np.float32)
    return put_out(test, {"y": y, "mean": mean[:, 0], "rstd": rstd[:, 0]})


def emulator(test: TestSpec, given: Given) -> Arrays:
    """The emulated Wormhole's right kernel."""
    return registry.numerics(test).run(test, given, "correct")


RIGHT: Mapping[str, tuple[Callable[[TestSpec, Given], Arrays], tuple[str, ...]]] = {
    "perfectly rounded": (perfect, ("generic", "tt-train", "fp32")),
    "emulated Wormhole": (emulator, ("generic", "tt-train")),
    "fp32, pairwise sums": (Arithmetic(_fp32, _fp32, pairwise), ("generic", "fp32")),
    "fp32, sums in order": (Arithmetic(_fp32, _fp32, in_order), ("generic", "fp32")),
    "fp32, sums backwards": (Arithmetic(_fp32, _fp32, backwards), ("generic", "fp32")),
    "fp32, 32 lanes": (Arithmetic(_fp32, _fp32, by_lanes), ("generic", "fp32")),
    "fp32, Welford": (welford, ("generic", "fp32")),
    "bf16 stored, nearest even": (Arithmetic(_bf16_even, _fp32, pairwise), ("generic",)),
    "bf16 stored, ties away, lanes": (Arithmetic(_bf16_away, _fp32, by_lanes), ("generic",)),
    "bf16 stored, truncated 1/N": (
        Arithmetic(_bf16_even, _fp32, by_lanes, truncated_reciprocal=True),
        ("generic",),
    ),
}
"""name -> (kernel, the budgets that must explain it)."""


def explanation(statistics: Mapping[str, Statistics]) -> Explanation:
    """Return the worst explanation of several outputs."""
    return worst_explanation(map(explain, statistics.values()))

"""The numerics of l2norm_bw: its reference, its budget and its emulated builds.

The budget belongs to kernels that compute in fp32, and that may store the norm (or r), x^, P, S,
x^ S and P - x^ S in the test's `buffers` format. u is fp32's unit roundoff, b that of `buffers`,
and h(v) half an ulp of a value v in that format.

    r       |e_r| <= q r, q = (N + 1) u / 2 + 2 u + b     as in l2norm_fw
    x^      |e_x^| <= (q + u) |x^| + h(x^)
    P       |e_P| <= u |P| + h(P)
    S       |e_S| <= sum(|x^| |e_P| + |P| |e_x^|) + (N + 1) u sum |P x^| + b |S|
    dx      |e_dx| <= r (|e_P| + |x^| |e_S| + |S| |e_x^| + h(x^ S) + h(P - x^ S)
                         + 2 u (|P| + |x^ S|)) + (q + u) |dx| + h_out(dx)
    dgamma  |e_dgamma| <= sum(|dy| |e_x^|) + (rows + 1) u sum |dy x^| + h_out(dgamma)
"""

from collections.abc import Mapping

import numpy as np

from gonogo.kernels.kind import EVERYTHING, Fault, Numerics, with_min_step
from gonogo.kernels.layernorm.arithmetic.terms import UNIT_ROUNDOFF
from gonogo.numerics.expectation import Direction, Expectation, Shared, binade, output_step
from gonogo.numerics.formats import round_to

FP32 = UNIT_ROUNDOFF["fp32"]
TILE = 32


def gradients(x, gamma, dy, epsilon, *, mean=False, s_times=1, rows=EVERYTHING):
    """Return dx (rows, N) and dgamma (N,), in x's own precision.

    The keywords are what the wrong kernels do: the mean of the squares instead of their sum, a
    factor of S, and the rows that dgamma sums.
    """
    squares = x**2
    total = squares.mean(1, keepdims=True) if mean else squares.sum(1, keepdims=True)
    r = 1 / np.sqrt(total + x.dtype.type(epsilon))
    xhat = x * r
    p = dy * gamma
    s = (p * xhat).sum(axis=1, keepdims=True)
    return {"dx": r * (p - s_times * xhat * s), "dgamma": (dy * xhat)[rows].sum(axis=0)}


LOGIC: Mapping[str, tuple[str, tuple[str, ...], dict]] = {
    "correct": ("The right kernel.", (), {}),
    "s-missing": ("x^ S is not subtracted at all.", ("dx",), {"s_times": 0}),
    "s-sign": ("x^ S is added instead of subtracted.", ("dx",), {"s_times": -1}),
    "mean-square": ("The sum is divided by N, as in RMSNorm.", ("dx", "dgamma"), {"mean": True}),
    "dgamma-last-row-tile-missing": (
        "dgamma leaves out the last tile of rows.",
        ("dgamma",),
        {"rows": slice(-TILE)},
    ),
}
"""Build -> what it does, the outputs that it changes, and the keywords of `gradients`."""


class L2NormBackward(Numerics):
    """dx = r (P - x^ S), dgamma = sum of dy x^."""

    faults: Mapping[str, Fault] = {
        name: Fault(name, sentence, outputs, gauge=bool(outputs))
        for name, (sentence, outputs, _) in LOGIC.items()
    }

    def reference(self, test, arrays):
        """Return dx and dgamma in float64, by the plainest code."""
        return self.ideal(test, arrays, "correct")

    def expectations(self, test, given, arithmetic, rows=EVERYTHING):
        """Return what is expected of dx and dgamma; the module says why.

        An output that sums over the rows makes the kernel one block: `rows` is EVERYTHING.
        """
        x, gamma, dy = (np.asarray(given[name], np.float64) for name in ("x", "gamma", "dy"))
        stored, out = (UNIT_ROUNDOFF[test.numerics.buffers], UNIT_ROUNDOFF[test.numerics.output])
        r = 1 / np.sqrt((x**2).sum(axis=1, keepdims=True) + test.epsilon)
        xhat, p = x * r, dy * gamma
        px = p * xhat
        s = px.sum(axis=1, keepdims=True)
        through = xhat * s
        rest = p - through
        dx = r * rest

        e_r = (test.features + 1) * FP32 / 2 + 2 * FP32 + stored  # relative
        e_xhat = (e_r + FP32) * np.abs(xhat) + stored * binade(xhat)
        e_p = FP32 * np.abs(p) + stored * binade(p)
        terms = np.abs(xhat) * e_p + np.abs(p) * e_xhat + (test.features + 1) * FP32 * np.abs(px)
        e_s = terms.sum(axis=1, keepdims=True) + stored * np.abs(s)
        e_rest = e_p + np.abs(s) * e_xhat + stored * (binade(through) + binade(rest))
        e_rest += 2 * FP32 * (np.abs(p) + np.abs(through))
        e_dx = r * (e_rest + np.abs(xhat) * e_s) + (e_r + FP32) * np.abs(dx)
        h_dx = output_step(np.abs(dx) + e_dx, out, False)

        c = dy * xhat
        dgamma = c.sum(axis=0)[None, :]
        e_dgamma = (np.abs(dy) * e_xhat + (test.rows + 1) * FP32 * np.abs(c)).sum(axis=0)[None, :]
        h_dgamma = output_step(np.abs(dgamma) + e_dgamma, out, False)
        expected = {
            "dx": Expectation(
                reference=dx,
                bound=e_dx + h_dx,
                # a rounding error is uniform: its variance is a third of its bound's square
                noise=((r * e_rest) ** 2 + h_dx**2) / 3,
                out=out,
                # all of a row share the errors of S and of r
                shared=(
                    Shared((r * e_s) ** 2 / 3, xhat),
                    Shared(np.full_like(r, (e_r + FP32) ** 2 / 3), dx),
                ),
                # a wrong S shows along x^, a wrong r along dx
                directions=(Direction("xhat", xhat), Direction("scale", dx)),
            ),
            "dgamma": Expectation(
                reference=dgamma,
                bound=e_dgamma + h_dgamma,
                noise=(e_dgamma**2 + h_dgamma**2) / 3,
                out=out,
            ),
        }
        return {name: with_min_step(of, test.numerics.output) for name, of in expected.items()}

    def run(self, test, given, build, *, seed=0, position=0):
        """Return the outputs of an emulated build: fp32 inside, rounded to the output's format."""
        outputs = self._logic(test, given, build, np.float32)
        return {name: round_to(array, test.numerics.output) for name, array in outputs.items()}

    def ideal(self, test, given, build):
        """Return the outputs of the build's logic in float64."""
        return self._logic(test, given, build, np.float64)

    def right_variants(self, test):
        """Return no other right kernels: this emulation has neither fidelity nor SrcB."""
        return []

    def _logic(self, test, given, build, dtype):
        _, _, how = LOGIC[build]  # KeyError for an unknown build
        x, gamma, dy = (np.asarray(given[name], dtype) for name in ("x", "gamma", "dy"))
        return gradients(x, gamma, dy, test.epsilon, **how)


NUMERICS = {"l2norm_bw": L2NormBackward()}

"""The numerics of l2norm_fw: its reference, its budget, its emulated builds and a diagnosis.

The budget belongs to kernels that compute in fp32, and that may store the norm (or r) and x^ = x r
in the test's `buffers` format. u is fp32's unit roundoff, b that of `buffers`, and h(v) half an ulp
of a value v in its format.

    s = sum(x^2) + epsilon    each square and each of N additions adds u:  |e_s| <= (N + 1) u s
    r = 1/sqrt(s)             half of it, u each for root and quotient, one store:
                              |e_r| <= ((N + 1) u / 2 + 2 u + b) r
    x^ = x r                  |e_x^| <= |x| |e_r| + u |x^| + h_b(x^)
    y = gamma x^              |e_y| <= |gamma| |e_x^| + u |y| + h_out(y)
"""

from collections.abc import Mapping

import numpy as np

from gonogo.kernels.kind import EVERYTHING, Fault, Numerics, with_min_step
from gonogo.kernels.layernorm.arithmetic.terms import UNIT_ROUNDOFF
from gonogo.numerics.diagnosis import Diagnosis, Term
from gonogo.numerics.expectation import Direction, Expectation, Keyed, Shared, binade, output_step
from gonogo.numerics.formats import round_to
from gonogo.spec.diagnoses import RIGHT

FP32 = UNIT_ROUNDOFF["fp32"]
TILE = 32


def scale(x, epsilon, columns=EVERYTHING):
    """Return r (rows, 1), in x's own precision; `columns` are those that are summed."""
    sums = (x[:, columns] ** 2).sum(axis=1, keepdims=True)
    return 1 / np.sqrt(sums + x.dtype.type(epsilon))


class L2Norm(Numerics):
    """y = gamma x r."""

    faults: Mapping[str, Fault] = {
        fault.name: fault
        for fault in (
            Fault("correct", "The right kernel.", gauge=False),
            Fault("mean-square", "The sum is divided by N, as in RMSNorm.", ("y",)),
            Fault("sum-tile-missing", "The sum leaves out the row's last tile.", ("y",)),
            Fault("gamma-missing", "y isn't multiplied by gamma.", ("y",)),
            Fault("epsilon-dropped", "epsilon is not added.", ("y",)),
        )
    }

    def reference(self, test, arrays):
        """Return y (rows, N) in float64, by the plainest code."""
        x, gamma = (np.asarray(arrays[name], np.float64) for name in ("x", "gamma"))
        return {"y": gamma * x * scale(x, test.epsilon)}

    def expectations(self, test, given, arithmetic, rows=EVERYTHING):
        """Return what is expected of y in these rows; the module says why."""
        x = np.asarray(given["x"][rows], np.float64)
        gamma = np.asarray(given["gamma"], np.float64)[None, :]
        stored, out = (UNIT_ROUNDOFF[test.numerics.buffers], UNIT_ROUNDOFF[test.numerics.output])
        r = scale(x, test.epsilon)
        xhat = x * r
        y = gamma * xhat
        sums = (test.features + 1) * FP32 / 2
        h_xhat = stored * binade(xhat)
        before = (sums + 4 * FP32 + stored) * np.abs(y) + np.abs(gamma) * h_xhat
        expected = Expectation(
            reference=y,
            bound=before + output_step(np.abs(y) + before, out, False),
            # a rounding error is uniform: its variance is a third of its bound's square
            noise=((2 * FP32 * y) ** 2 + output_step(y, out, False) ** 2) / 3,
            out=out,
            # a row has one r, so that its error moves all of the row's y together
            shared=(Shared(np.full_like(r, (sums**2 + stored**2) / 3), y),),
            # equal |x| of a row have equal |x^|, which are rounded alike
            keyed=(Keyed(np.abs(x), gamma * np.copysign(h_xhat, x) / 3**0.5, True),),
            # a wrong sum shows as a factor of a row, a constant that is added as a row's shift
            directions=(Direction("scale", y), Direction("row", np.ones_like(y))),
        )
        return {"y": with_min_step(expected, test.numerics.output)}

    def run(self, test, given, build, *, seed=0, position=0):
        """Return y of an emulated build: float32 inside, rounded to the output's format."""
        y = self._logic(test, {name: np.float32(given[name]) for name in ("x", "gamma")}, build)
        return {"y": round_to(y, test.numerics.output)}

    def ideal(self, test, given, build):
        """Return y by the build's logic in float64: if it is the reference, no fault can show."""
        return {
            "y": self._logic(
                test, {name: np.float64(given[name]) for name in ("x", "gamma")}, build
            )
        }

    def right_variants(self, test):
        """Return no other right kernels: this emulation has neither fidelity nor SrcB."""
        return []

    def diagnose(self, test, given, outputs):
        """Say how much of the sum a wrong y has, where its rows are off by a factor only."""
        y, expected = (
            np.asarray(outputs["y"], np.float64),
            self.expectations(test, given, None)["y"],
        )
        reference = expected.reference
        with np.errstate(all="ignore"):
            factors = (y * reference).sum(axis=1, keepdims=True)
            factors /= (reference**2).sum(axis=1, keepdims=True)
            rest = np.abs(y - factors * reference)
            can_tell = bool((rest <= 2 * np.abs(factors) * expected.bound).all())
            share = float(np.median(1 / factors**2))
        words, wrong = "cannot tell: the rows of y are off by more than a factor", False
        if can_tell:
            wrong = abs(share - 1) > 2 * (
                UNIT_ROUNDOFF[test.numerics.buffers] + test.features * FP32
            )
            words = f"the sum has {100 * share:.3g} % of its squares" if wrong else RIGHT
        term = Term("y", "sum", 1, (share,), (None,), words, wrong=wrong, can_tell=can_tell)
        return Diagnosis((term,), words, can_tell)

    @np.errstate(divide="ignore", invalid="ignore")  # a row of zeros without epsilon is NaN
    def _logic(self, test, given, build):
        self.faults[build]  # KeyError for an unknown build
        x, gamma = given["x"], given["gamma"]
        epsilon = 0.0 if build == "epsilon-dropped" else test.epsilon
        if build == "mean-square":
            r = 1 / np.sqrt((x**2).mean(axis=1, keepdims=True) + x.dtype.type(epsilon))
        else:
            r = scale(x, epsilon, slice(-TILE) if build == "sum-tile-missing" else EVERYTHING)
        return x * r if build == "gamma-missing" else gamma * (x * r)


NUMERICS = {"l2norm_fw": L2Norm()}

"""A plug-in executor: LayerNorm in float32 NumPy."""

import numpy as np


class NumpyExecutor:
    """LayerNorm with two builds.

    `float32` is a right kernel; `no-s2` omits the second reduction of the backward pass, as a real
    kernel did.
    """

    BUILDS = ("float32", "no-s2")
    kernels = ("layernorm_fw", "layernorm_bw")  # what it offers; others are refused for it

    def __init__(self, build):
        if build not in self.BUILDS:
            raise ValueError(f"unknown build {build!r}; allowed: {', '.join(self.BUILDS)}")
        self.build = build

    def run(self, test, inputs):
        # `test` leaves out fields with default values
        epsilon = np.float32(test.get("epsilon", 1e-6))
        x, gamma = inputs["x"], inputs["gamma"]
        if "mean" in inputs:  # layernorm_bw with "statistics": "given"
            mean, rstd = inputs["mean"][..., None], inputs["rstd"][..., None]
        else:
            mean = x.mean(-1, keepdims=True)
            rstd = 1 / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + epsilon)
        xhat = (x - mean) * rstd
        if test["kernel"] == "layernorm_fw":
            return {"y": gamma * xhat + inputs["beta"], "mean": mean[..., 0], "rstd": rstd[..., 0]}
        dy = inputs["dy"]
        p = dy * gamma
        s1 = p.mean(-1, keepdims=True)
        s2 = (p * xhat).mean(-1, keepdims=True)
        if self.build == "no-s2":
            s2 = 0 * s2
        rows = tuple(range(x.ndim - 1))
        return {
            "dx": rstd * (p - s1 - xhat * s2),
            "dgamma": (dy * xhat).sum(rows),
            "dbeta": dy.sum(rows),
        }

    def close(self):
        """Optional: called once before the child process ends."""

"""Runs the kernel of any commit: the plug-in executor of this repository's device hosts.

Start a worker with GONOGO_EXECUTORS="kernels=kernels_executor:KernelsExecutor", and with
KERNELS_STORE as the folder that `publish.sh` copies to.
"""

import importlib.util
import os
from pathlib import Path

import numpy as np


class KernelsExecutor:
    """The LayerNorm backward of one commit; `build` is the name that the pipeline gave it."""

    def __init__(self, build):
        if "/" in build:  # the name comes from outside: it must not lead out of the folder
            raise ValueError(f"{build!r} can't be the name of a build")
        path = Path(os.environ["KERNELS_STORE"]) / build / "layernorm.py"
        if not path.exists():
            raise ValueError(f"there is no {path}: has its pipeline run publish.sh?")
        spec = importlib.util.spec_from_file_location("kernel_under_test", path)
        self.kernel = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.kernel)

    def run(self, test, inputs):
        x, dy = (inputs[name].reshape(-1, test["shape"][-1]) for name in ("x", "dy"))
        epsilon = np.float32(test.get("epsilon", 1e-6))
        dx, dgamma, dbeta = self.kernel.layernorm_backward(x, inputs["gamma"], dy, epsilon)
        return {"dx": dx.reshape(test["shape"]), "dgamma": dgamma, "dbeta": dbeta}

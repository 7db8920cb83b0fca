"""LayerNorm on a Wormhole by ttnn: a real card, or the simulated one (docs/wormhole.md).

It runs in the build's interpreter. A build is one of VARIANTS by its name, or names one in its
options (`options = { variant = "ttnn-moreh" }` in the builds file), so that many installed versions
of ttnn can be builds of the same variant.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ttnn_device import Array, Device, Unsupported
from ttnn_generic import backward
from ttnn_layernorm import layer_norm, moreh_backward, moreh_forward

Run = Callable[[Mapping[str, Any], Mapping[str, Array]], dict[str, Array]]

VARIANTS: Mapping[str, Mapping[str, Run]] = {
    "ttnn": {"layernorm_fw": partial(layer_norm, forced=None), "layernorm_bw": moreh_backward},
    "ttnn-legacy": {"layernorm_fw": partial(layer_norm, forced="legacy")},
    "ttnn-welford": {"layernorm_fw": partial(layer_norm, forced="welford")},
    "ttnn-moreh": {"layernorm_fw": moreh_forward, "layernorm_bw": moreh_backward},
    "ttnn-generic-bw": {"layernorm_bw": partial(backward, defines=())},
    "ttnn-generic-bw-double-subtract": {
        "layernorm_bw": partial(backward, defines=("SUBTRACT_S1_TWICE",))
    },
}
"""The function for each variant and kernel.

gonogo.spec.executors has the same names (a test compares them).
"""


class TtnnExecutor:
    """One build. All executors of a process share one device, which stays open."""

    def __init__(self, build: str) -> None:
        """Raise ValueError, with the variants, for a build that is none of them.

        Also raises the error of ttnn when the device can't be opened.
        """
        known = json.loads(os.environ.get("GONOGO_BUILD") or "{}")
        options = known.get("options") or {} if known.get("name", build) == build else {}
        self.variant = str(options.get("variant", build))
        if self.variant not in VARIANTS:
            allowed = f"allowed: {', '.join(VARIANTS)} (options.variant in the builds file)"
            raise ValueError(f"unknown variant {self.variant!r} of ttnn; {allowed}")
        Device.get()

    def run(self, test: Mapping[str, Any], inputs: dict[str, Array]) -> dict[str, Array]:
        """Return the kernel's outputs for one seed.

        Raises Unsupported for a combination that the build doesn't offer.
        """
        kernels = VARIANTS[self.variant]
        kernel = str(test["kernel"])
        if kernel not in kernels:
            raise Unsupported(f"{self.variant} has no {kernel}; it has {', '.join(kernels)}")
        return kernels[kernel](test, inputs)

    def close(self) -> None:
        """Close the device; called before the process ends."""
        Device.close()

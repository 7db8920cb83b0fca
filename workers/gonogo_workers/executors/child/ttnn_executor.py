"""Kernels on a Wormhole by ttnn: a real card, or the simulated one (docs/wormhole.md).

It runs in the build's interpreter. A build is one of VARIANTS by its name, or names one in its
options (`options = { variant = "ttnn-moreh" }` in the builds file), so that many installed versions
of ttnn can be builds of the same variant.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from ttnn_device import Array, Device, Unsupported
from ttnn_generic import backward
from ttnn_operations import (
    BF16,
    USUAL,
    Operation,
    epsilon,
    keys_at_once,
    of_4_axes,
    on_one_core,
    placed,
)

WEIGHTS = {"weight": "gamma", "bias": "beta"}
LAYER_NORM = Operation(
    "layer_norm",
    keywords=WEIGHTS,
    settings=placed,
    formats=(*USUAL, "bfp8_b"),
    narrower={"gamma": USUAL, "beta": USUAL},
    has_placements=True,
)
# moreh's operations take statistics without the last axis of x, and weights as they are
MOREH_LAYOUTS = {
    **dict.fromkeys(("mean", "rstd"), lambda array: of_4_axes(array[..., None])[..., 0]),
    **dict.fromkeys(("gamma", "beta"), lambda array: array),
}
MOREH_BACKWARD = Operation(
    "operations.moreh.layer_norm_backward",
    ("dy", "x", "mean", "rstd"),
    {"gamma": "gamma"},
    MOREH_LAYOUTS,
    settings=lambda test: {"normalized_dims": 1},
    outputs={"dx": "input_grad", "dgamma": "gamma_grad", "dbeta": "beta_grad"},
    formats=BF16,
)
GENERIC = Operation(
    "generic_op",
    ("x", "dy", "mean", "rstd", "gamma"),
    layouts=dict.fromkeys(("mean", "rstd"), lambda array: of_4_axes(array[..., None])),
    outputs={"dx": "dx"},
    formats=BF16,
    function=backward,
)
SOFTMAX = Operation("softmax", settings=lambda test: {"dim": -1})
SUM = replace(SOFTMAX, call="sum", y=lambda y, shape: y.reshape(shape[:-1]))
# the matrix unit sums in fp32, too, where the SFPU does it otherwise
FAST = {"settings": lambda test: {"dim": -1, "fast_and_approximate_mode": True}}


def one_matrix(array: Array) -> Array:
    """Return a batch of matrices as one, whose rows fill more tiles."""
    return array.reshape(1, 1, -1, array.shape[-1])


def channels_last(x: Array) -> Array:
    """Return group norm's x: (N, 1, positions, channels)."""
    return np.swapaxes(x.reshape(1, *x.shape[:2], -1), 2, 3).swapaxes(0, 1)


VARIANTS: Mapping[str, Mapping[str, Operation]] = {
    "ttnn": {
        "layernorm_fw": LAYER_NORM,
        "layernorm_bw": MOREH_BACKWARD,
        "rmsnorm_fw": Operation("rms_norm", keywords={"weight": "gamma"}, settings=epsilon),
        "groupnorm_fw": Operation(
            "group_norm",
            keywords=WEIGHTS,
            layouts={
                "x": channels_last,
                **dict.fromkeys(("gamma", "beta"), lambda array: array.reshape(1, 1, -1, 32)),
            },
            in_rows=("gamma", "beta"),
            settings=on_one_core,
            y=lambda y, shape: np.swapaxes(y[:, 0], 1, 2).reshape(shape),
            narrower={"gamma": BF16, "beta": BF16},
        ),
        "softmax": SOFTMAX,
        "gelu": Operation("gelu", is_configured=False),
        "silu": Operation("silu", is_configured=False),
        "add": Operation("add", ("a", "b"), is_configured=False),
        "mul": Operation("multiply", ("a", "b"), is_configured=False),
        "matmul": Operation("matmul", ("a", "b"), layouts={"a": one_matrix}),
        "linear": Operation(
            "linear",
            ("x", "weight"),
            {"bias": "bias"},
            {"x": one_matrix, "weight": lambda array: of_4_axes(array.T)},
        ),
        "attention": Operation(
            "transformer.scaled_dot_product_attention",
            ("q", "k", "v"),
            settings=keys_at_once,
            formats=BF16,
        ),
        "sum": SUM,
        "mean": replace(SUM, call="mean"),
        "embedding": Operation(
            "embedding",
            ("indices", "table"),
            layouts={"indices": lambda a: a.reshape(-1, a.shape[-1]), "table": lambda a: a},
            in_rows=("indices", "table"),
            y=lambda y, shape: y.reshape(*shape, -1),
            formats=BF16,
            is_configured=False,
        ),
    },
    "ttnn-fast": {
        "sum": replace(SUM, **FAST),
        "mean": replace(SUM, call="mean", **FAST),
        "softmax": replace(SOFTMAX, settings=lambda test: {"dim": -1, "numeric_stable": False}),
    },
    "ttnn-legacy": {
        "layernorm_fw": replace(LAYER_NORM, settings=partial(placed, program="legacy"))
    },
    "ttnn-welford": {
        "layernorm_fw": replace(LAYER_NORM, settings=partial(placed, program="welford"))
    },
    "ttnn-moreh": {
        "layernorm_fw": Operation(
            "operations.moreh.layer_norm",
            keywords={"gamma": "gamma", "beta": "beta"},
            layouts=MOREH_LAYOUTS,
            settings=lambda test: {"normalized_dims": 1, **epsilon(test, "eps")},
            outputs={"y": "output", "mean": "mean", "rstd": "rstd"},
            formats=BF16,
        ),
        "layernorm_bw": MOREH_BACKWARD,
    },
    "ttnn-generic-bw": {"layernorm_bw": GENERIC},
    "ttnn-generic-bw-double-subtract": {
        "layernorm_bw": replace(GENERIC, settings=lambda test: {"defines": ("SUBTRACT_S1_TWICE",)})
    },
}
"""The operation for each variant and kernel.

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
        return kernels[kernel].run(test, inputs)

    @property
    def kernel_s(self) -> float | None:
        """The seconds of the last kernel; None on the simulated card, whose time is the host's."""
        return None if "TT_METAL_SIMULATOR" in os.environ else Device.launch_s

    def close(self) -> None:
        """Close the device; called before the process ends."""
        Device.close()

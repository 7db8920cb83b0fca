"""LayerNorm over the last dimension, forward and backward.

y = gamma x^ + beta with x^ = (x - mean) rstd, and its gradients.
"""

from __future__ import annotations

from gonogo.spec.kernels.kernel import Kernel

BUILDS = (
    "correct", "last-two-tiles", "double-subtract", "last-block-only", "tt-train-2025",
    "drop-s1", "bf16-accumulate", "wrong-epsilon", "unbiased-variance", "gamma-shifted-tile",
    "mask-missing", "mean-not-subtracted", "mean-last-tile-missing",
    "dgamma-last-row-tile-missing", "tile-missing", "rstd-off-1e-3", "stale-register",
    "power-of-two-outliers", "nan-tile", "hang", "crash",
)  # fmt: skip
"""The builds in gonogo.emulator, in that order (a test compares them)."""

FORWARD_ONLY = ("mean-last-tile-missing",)
BACKWARD_ONLY = (
    "last-two-tiles", "double-subtract", "last-block-only", "drop-s1",
    "dgamma-last-row-tile-missing",
)  # fmt: skip
"""The mutants of one of the two kernels (a test compares them). `tt-train-2025` is none of them,
although its faults are in the backward kernel: it is a release of a library, whose forward kernel
is right, and a suite of both kernels runs on it."""

KERNELS = (
    Kernel(
        "layernorm_fw",
        ("y", "mean", "rstd"),
        ("x", "gamma", "beta"),
        builds=BUILDS,
        unchanged_by=BACKWARD_ONLY,
        downstream=("linear",),
    ),
    Kernel(
        "layernorm_bw",
        ("dx", "dgamma", "dbeta"),
        ("x", "gamma", "dy"),
        builds=BUILDS,
        unchanged_by=FORWARD_ONLY,
        given=("x", "gamma", "mean", "rstd", "dy"),
    ),
)

"""RMSNorm over the last dimension, forward and backward.

y = gamma x^ with x^ = x rstd, rstd = 1/sqrt(mean(x^2) + epsilon), and its gradients.
"""

from __future__ import annotations

from gonogo.spec.kernels.kernel import Kernel

BUILDS = (
    "correct", "bf16-accumulate", "wrong-epsilon", "epsilon-dropped", "mean-subtracted",
    "padded-count", "last-tile-only", "last-tile-missing", "tile-missing", "mask-missing",
    "stale-partial", "stale-register", "rstd-off-1e-3", "gamma-shifted-tile", "gamma-neighbour",
    "gamma-missing", "power-of-two-outliers", "nan-tile", "hang", "crash",
)  # fmt: skip
BACKWARD_BUILDS = (
    "correct", "drop-s2", "s2-sign", "last-block-only", "bf16-accumulate", "wrong-epsilon",
    "mean-subtracted", "padded-count", "last-tile-only", "last-tile-missing", "tile-missing",
    "mask-missing", "stale-partial", "stale-register", "rstd-off-1e-3", "gamma-shifted-tile",
    "gamma-neighbour", "gamma-missing", "dgamma-last-row-tile-missing", "power-of-two-outliers",
    "nan-tile", "hang", "crash",
)  # fmt: skip
"""The builds in gonogo.emulator of each pass, in that order (a test compares them)."""

KERNELS = (
    Kernel("rmsnorm_fw", ("y", "rstd"), ("x", "gamma"), builds=BUILDS),
    Kernel(
        "rmsnorm_bw",
        ("dx", "dgamma"),
        ("x", "gamma", "dy"),
        builds=BACKWARD_BUILDS,
        given=("x", "gamma", "rstd", "dy"),
    ),
)

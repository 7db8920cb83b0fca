"""RMSNorm, forward, over the last dimension.

y = gamma x rstd with rstd = 1/sqrt(mean(x^2) + epsilon).
"""

from __future__ import annotations

from gonogo.spec.kernels.kernel import Kernel

BUILDS = (
    "correct", "bf16-accumulate", "wrong-epsilon", "epsilon-dropped", "mean-subtracted",
    "padded-count", "last-tile-only", "last-tile-missing", "tile-missing", "mask-missing",
    "stale-partial", "stale-register", "rstd-off-1e-3", "gamma-shifted-tile", "gamma-neighbour",
    "gamma-missing", "power-of-two-outliers", "nan-tile", "hang", "crash",
)  # fmt: skip
"""The names in its emulation's FAULTS, in that order (a test compares them)."""

KERNELS = (
    Kernel("rmsnorm_fw", ("y", "rstd"), ("x", "gamma"), "gonogo.kernels.rmsnorm.numerics", BUILDS),
)

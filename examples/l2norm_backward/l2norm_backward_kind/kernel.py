"""The kernel l2norm_bw as a test sees it. No NumPy: the API process imports this module."""

from gonogo.spec.kernels.kernel import Kernel

BUILDS = ("correct", "s-missing", "s-sign", "mean-square", "dgamma-last-row-tile-missing")

L2NORM_BW = Kernel(
    name="l2norm_bw",
    outputs=("dx", "dgamma"),
    drawn=("x", "gamma", "dy"),
    numerics="l2norm_backward_kind.numerics",
    builds=BUILDS,
    block_formats=False,
)

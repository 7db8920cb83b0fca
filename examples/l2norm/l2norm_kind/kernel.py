"""The kernel l2norm_fw as a test sees it. No NumPy: the API process imports this module."""

from gonogo.spec.kernels.kernel import Kernel

BUILDS = ("correct", "mean-square", "sum-tile-missing", "gamma-missing", "epsilon-dropped")

L2NORM_FW = Kernel(
    name="l2norm_fw",
    outputs=("y",),
    drawn=("x", "gamma"),
    numerics="l2norm_kind.numerics",
    builds=BUILDS,
    block_formats=False,
)

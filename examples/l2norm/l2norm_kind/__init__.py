"""The L2 norm over the last dimension, as a test sees it: y = gamma x r, r = 1/sqrt(sum x^2 + eps).

No NumPy: the API process imports this module.
"""

from gonogo.spec.kernels.kernel import Kernel

L2NORM_FW = Kernel(
    name="l2norm_fw",
    outputs=("y",),
    drawn=("x", "gamma"),
    reference="l2norm_kind.reference:KERNEL",
    builds=("correct", "without-tile-0/total", "without-last/total", "missing/gamma@y"),
    block_formats=False,
)

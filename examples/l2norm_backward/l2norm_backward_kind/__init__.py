"""The gradients of the L2 norm, as a test sees them. No NumPy: the API process imports this module.

dx = r (P - x^ S) and dgamma = sum of dy x^ over the rows, with r = 1/sqrt(sum x^2 + epsilon),
x^ = x r, P = dy gamma and S = sum P x^.
"""

from gonogo.spec.kernels.kernel import Kernel

L2NORM_BW = Kernel(
    name="l2norm_bw",
    outputs=("dx", "dgamma"),
    drawn=("x", "gamma", "dy"),
    reference="l2norm_backward_kind.reference:KERNEL",
    builds=("correct", "missing/share@rest", "sign/share@rest", "without-last/dgamma"),
    block_formats=False,
)

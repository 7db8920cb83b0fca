"""torch's kernels: ATen's own ones, and the decompositions from which the compiler starts."""

from __future__ import annotations

from typing import Any

from torch_setup import torch

ALL = [True, True, True]

Tensor = Any


def native_forward(
    x: Tensor, gamma: Tensor, beta: Tensor, epsilon: float, group: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Run ATen's kernels. With one group and a channel per feature, group norm is LayerNorm."""
    rows, n = x.shape
    if group:
        return torch.ops.aten.native_group_norm(x, gamma, beta, rows, n, 1, 1, epsilon)  # type: ignore[no-any-return]
    return torch.ops.aten.native_layer_norm(x, [n], gamma, beta, epsilon)  # type: ignore[no-any-return]


def native_backward(
    dy: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, gamma: Tensor, beta: Tensor, group: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Run ATen's backward kernels."""
    rows, n = x.shape
    mean, rstd = mean.reshape(rows, 1), rstd.reshape(rows, 1)
    if group:
        return torch.ops.aten.native_group_norm_backward(
            dy, x, mean, rstd, gamma, rows, n, 1, 1, ALL
        )  # type: ignore[no-any-return]
    return torch.ops.aten.native_layer_norm_backward(dy, x, [n], mean, rstd, gamma, beta, ALL)  # type: ignore[no-any-return]


def decomposed_forward(
    x: Tensor, gamma: Tensor, beta: Tensor, epsilon: float, group: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Run torch._refs: var_mean and elementwise operations, one by one.

    The compiler starts from them.
    """
    rows, n = x.shape
    if group:
        return torch._refs.native_group_norm(x, gamma, beta, rows, n, 1, 1, epsilon)  # type: ignore[no-any-return]
    return torch._refs.native_layer_norm(x, [n], gamma, beta, epsilon)  # type: ignore[no-any-return]


def decomposed_backward(
    dy: Tensor,
    x: Tensor,
    mean: Tensor,
    rstd: Tensor,
    gamma: Tensor,
    beta: Tensor,
    group: bool,
    wide: bool,
) -> tuple[Tensor, ...]:
    """Run torch's decompositions of the backward kernels.

    `wide`: widened to fp32 first (the compiler fuses them so) and rounded once. Otherwise the steps
    run one by one: LayerNorm's rounds rstd / N to 16 bits, and group norm's rounds every
    intermediate. The factor of a whole row is then off by up to 2^-8, which GoNoGo does not accept
    as the rounding of a right kernel.
    """
    rows, n = x.shape
    mean, rstd = mean.reshape(rows, 1), rstd.reshape(rows, 1)
    dtypes = (x.dtype, gamma.dtype, beta.dtype)
    dy, x, mean, rstd, gamma, beta = (
        tensor.to(torch.float32) if wide else tensor for tensor in (dy, x, mean, rstd, gamma, beta)
    )
    if group:
        gradients = torch._decomp.decompositions.native_group_norm_backward(
            dy, x, mean, rstd, gamma, rows, n, 1, 1, ALL
        )
    else:
        gradients = torch._decomp.decompositions.native_layer_norm_backward(
            dy, x, [n], mean, rstd, gamma, beta, ALL
        )
    return tuple(gradient.to(dtype) for gradient, dtype in zip(gradients, dtypes, strict=True))


def rms_norm(x: Tensor, gamma: Tensor, epsilon: float) -> dict[str, Tensor]:
    """Run the operation beneath torch.nn.functional.rms_norm, which also returns rstd."""
    y, rstd = torch.ops.aten._fused_rms_norm(x, [x.shape[1]], gamma, epsilon)
    return {"y": y, "rstd": rstd}


def decomposed_rms_norm(x: Tensor, gamma: Tensor, epsilon: float) -> dict[str, Tensor]:
    """Run the decomposition from which the compiler starts: fp32 inside, one rounding."""
    y, rstd = torch._decomp.decomposition_table[torch.ops.aten._fused_rms_norm.default](
        x, [x.shape[1]], gamma, epsilon
    )
    return {"y": y, "rstd": rstd}


def decomposed_rms_backward(
    dy: Tensor, x: Tensor, rstd: Tensor, gamma: Tensor
) -> tuple[Tensor, ...]:
    """Run the decomposition from which the compiler starts: fp32 inside, one rounding."""
    decomposition = torch._decomp.decomposition_table[
        torch.ops.aten._fused_rms_norm_backward.default
    ]
    gradients = decomposition(dy, x, [x.shape[1]], rstd.to(torch.float32), gamma, [True, True])
    return tuple(gradients)


def group_norm(
    x: Tensor, gamma: Tensor, beta: Tensor, epsilon: float, groups: int
) -> dict[str, Tensor]:
    """Run ATen's kernel beneath torch.nn.functional.group_norm.

    x: (samples, channels, elements).
    """
    outputs = torch.ops.aten.native_group_norm(
        x.contiguous(), gamma, beta, *x.shape, groups, epsilon
    )
    return dict(zip(("y", "mean", "rstd"), outputs, strict=True))


def decomposed_group_norm(
    x: Tensor, gamma: Tensor, beta: Tensor, epsilon: float, groups: int
) -> dict[str, Tensor]:
    """Run torch._refs: var_mean and elementwise operations."""
    outputs = torch._refs.native_group_norm(x.contiguous(), gamma, beta, *x.shape, groups, epsilon)
    return dict(zip(("y", "mean", "rstd"), outputs, strict=True))

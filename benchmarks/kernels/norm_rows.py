"""Norms as torch, jax and onnxruntime compute them."""

from __future__ import annotations

from benchmarks.kernels.rows import Row

RSTD = "torch.rsqrt((x * x).mean(-1, keepdim=True) + epsilon)"
RMS = f"x * {RSTD}"
JAX_RSTD = "jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + epsilon)"
JAX_RMS = f"x * {JAX_RSTD}"
BATCH_NORM = "torch.native_batch_norm"
LAYER_NORM = "F.layer_norm(x, x.shape[-1:], gamma, torch.zeros_like(gamma), epsilon)"
ROWS = (
    Row(
        "layernorm_fw",
        "torch",
        "y, mean, rstd = torch.native_layer_norm(x, x.shape[-1:], gamma, beta, epsilon)",
        faults=("y, mean, rstd = torch.native_layer_norm(x, x.shape[-1:], gamma, beta, 1e-2)",),
    ),
    Row(
        "layernorm_fw",
        "onnxruntime",
        "y, mean, rstd = op('LayerNormalization', x, gamma, beta, epsilon=epsilon, outputs=3)",
    ),
    Row("layernorm_bw_own", "torch", f"y = {LAYER_NORM}", gradients=("x", "gamma")),
    Row("rmsnorm_fw", "torch", f"r = {RSTD}; y, rstd = x * r * gamma, r", formats=("fp32",)),
    Row("rmsnorm_fw", "jax", f"r = {JAX_RSTD}; y, rstd = x * r * gamma, r"),
    Row(
        "rmsnorm_bw_own",
        "torch",
        "y = F.rms_norm(x, x.shape[-1:], gamma, epsilon)",
        gradients=("x", "gamma"),
    ),
    Row("rmsnorm_bw_own", "jax", f"y = x * {JAX_RSTD} * gamma", gradients=("x", "gamma")),
    Row(
        "add_layernorm",
        "torch",
        "total = x + residual; y = F.layer_norm(total, total.shape[-1:], gamma, beta, epsilon)",
        faults=(
            "total = x + residual; y = F.layer_norm(x, x.shape[-1:], gamma, beta, epsilon)",
            "total = x + residual; y = F.layer_norm(total, x.shape[-1:], gamma, None, epsilon)",
            "total = x + residual; y = F.layer_norm(total, x.shape[-1:], gamma, beta, 1e-2)",
        ),
    ),
    Row(
        "add_layernorm",
        "onnxruntime",
        "y, _, _, total = op('SkipLayerNormalization', x, residual, gamma, beta, outputs=4,"
        " epsilon=epsilon, domain='com.microsoft')",
    ),
    Row(
        "add_layernorm",
        "jax",
        "total = x + residual; c = total - total.mean(-1, keepdims=True);"
        " y = c * jax.lax.rsqrt((c * c).mean(-1, keepdims=True) + epsilon) * gamma + beta",
    ),
    Row(
        "add_rmsnorm",
        "torch",
        "total = x + residual; y = F.rms_norm(total, total.shape[-1:], gamma, epsilon)",
        faults=("total = x + residual; y = F.rms_norm(x, x.shape[-1:], gamma, epsilon)",),
    ),
    Row(
        "add_rmsnorm",
        "onnxruntime",
        "y, _, _, total = op('SkipSimplifiedLayerNormalization', x, residual, gamma, outputs=4,"
        " epsilon=epsilon, domain='com.microsoft')",
    ),
    Row(
        "add_rmsnorm",
        "jax",
        f"x = x + residual; total = x; y = {JAX_RMS} * gamma",
        faults=(f"total = x + residual; y = {JAX_RMS} * gamma",),
    ),
    Row(
        "gemma_rmsnorm",
        "torch",
        f"h, x, gamma = x.dtype, x.float(), gamma.float(); y = ({RMS} * (1 + gamma)).to(h)",
        faults=(f"y = {RMS} * gamma",),
    ),
    Row("gemma_rmsnorm", "jax", f"y = {JAX_RMS} * (1 + gamma)", faults=(f"y = {JAX_RMS} * gamma",)),
    Row("rmsnorm_bias", "torch", "y = F.rms_norm(x, x.shape[-1:], gamma, epsilon) + beta"),
    Row(
        "rmsnorm_bias",
        "jax",
        f"y = {JAX_RMS} * gamma + beta",
        faults=(f"y = {JAX_RMS} * gamma", f"y = {JAX_RMS} * gamma - beta"),
    ),
    Row(
        "l2norm",
        "torch",
        "y = F.normalize(x, dim=-1, eps=epsilon)",
        faults=("y = F.normalize(x, p=1, dim=-1)",),
    ),
    Row(
        "l2norm", "jax", "y = x / jnp.maximum(jnp.linalg.norm(x, axis=-1, keepdims=True), epsilon)"
    ),
    Row("l2norm", "onnxruntime", "y = op('LpNormalization', x, axis=-1, p=2)"),
    Row("l2norm_bw", "torch", "y = F.normalize(x, dim=-1, eps=epsilon)", gradients=("x",)),
    Row(
        "l2norm_bw",
        "jax",
        "y = x / jnp.maximum(jnp.linalg.norm(x, axis=-1, keepdims=True), epsilon)",
        gradients=("x",),
        faults=("y = x / jax.lax.stop_gradient(jnp.linalg.norm(x, axis=-1, keepdims=True))",),
    ),
    Row(
        "batchnorm_fw",
        "torch",
        f"y, mean, rstd = {BATCH_NORM}(x, gamma, beta, None, None, True, 0.1, epsilon)",
        faults=(
            f"y, mean, rstd = {BATCH_NORM}(x, gamma, None, None, None, True, 0.1, epsilon)",
            f"y, mean, rstd = {BATCH_NORM}(x, gamma, beta, None, None, True, 0.1, 1e-2)",
        ),
    ),
    Row(
        "batchnorm_bw",
        "torch",
        "y = F.batch_norm(x, None, None, gamma, torch.zeros_like(gamma), True, 0.1, epsilon)",
        gradients=("x", "gamma"),
    ),
    Row(
        "batchnorm_bw",
        "jax",
        "c = x - x.mean((0, 2, 3), keepdims=True); v = (c * c).mean((0, 2, 3), keepdims=True);"
        " y = c * jax.lax.rsqrt(v + epsilon) * gamma[:, None, None]",
        gradients=("x", "gamma"),
    ),
    Row(
        "batchnorm_inference",
        "torch",
        "y = F.batch_norm(x, mean, variance, gamma, beta, False, 0.1, epsilon)",
        faults=("y = F.batch_norm(x, mean, variance, gamma, beta, False, 0.1, 1e-2)",),
    ),
    Row(
        "batchnorm_inference",
        "onnxruntime",
        "y = op('BatchNormalization', x, gamma, beta, mean, variance, epsilon=epsilon)",
    ),
    Row(
        "batchnorm_inference",
        "jax",
        "w = gamma / jnp.sqrt(variance + epsilon);"
        " y = x * w[:, None, None] + (beta - mean * w)[:, None, None]",
    ),
    Row(
        "instancenorm",
        "torch",
        "y = F.instance_norm(x, weight=gamma, bias=beta, eps=epsilon)",
        faults=("y = F.group_norm(x, x.shape[1] // 2, gamma, beta, epsilon)",),
    ),
    Row(
        "instancenorm",
        "onnxruntime",
        "y = op('InstanceNormalization', x, gamma, beta, epsilon=epsilon)",
    ),
    Row(
        "groupnorm_fw",
        "torch",
        "y, mean, rstd = torch.native_group_norm(x, gamma, beta, *x.shape[:2], x[0, 0].numel(),"
        " num_groups, epsilon)",
        parameters={"num_groups": 8},
    ),
    Row(
        "groupnorm_bw",
        "torch",
        "y = F.group_norm(x, num_groups, gamma, torch.zeros_like(gamma), epsilon)",
        gradients=("x", "gamma"),
        parameters={"num_groups": 8},
    ),
)

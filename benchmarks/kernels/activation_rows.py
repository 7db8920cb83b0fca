"""Activations as torch, jax and onnxruntime compute them."""

from __future__ import annotations

from benchmarks.kernels.rows import Row

ROWS = (
    Row("gelu", "torch", "y = F.gelu(x)", faults=("y = F.gelu(x, approximate='tanh')",)),
    Row("gelu", "jax", "y = jax.nn.gelu(x, approximate=False)", faults=("y = jax.nn.gelu(x)",)),
    Row("gelu", "onnxruntime", "y = op('Gelu', x, approximate='none')", formats=("fp32",)),
    Row("gelu_backward", "torch", "y = F.gelu(x)", gradients=("x",)),
)

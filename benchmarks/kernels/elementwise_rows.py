"""Elementwise operations as torch, jax and onnxruntime compute them."""

from __future__ import annotations

from benchmarks.kernels.rows import Row

ROWS = (
    Row("add", "torch", "y = a + b", faults=("y = torch.add(a, b, alpha=1.01)",)),
    Row("add", "jax", "y = a + b", faults=("y = a - b",)),
    Row("add", "onnxruntime", "y = op('Add', a, b)"),
    Row("sub", "torch", "y = a - b", faults=("y = b - a",)),
    Row("sub", "jax", "y = a - b", faults=("y = jnp.abs(a - b)",)),
    Row("sub", "onnxruntime", "y = op('Sub', a, b)"),
    Row("mul", "torch", "y = a * b", faults=("y = a * b.to(torch.float8_e5m2).to(b.dtype)",)),
    Row("mul", "jax", "y = a * b", faults=("y = a * a",)),
    Row("mul", "onnxruntime", "y = op('Mul', a, b)"),
    Row("div", "torch", "y = a / b", faults=("y = a / (b + 1e-2)",)),
    Row("div", "torch", "y = a * torch.reciprocal(b)"),
    Row("div", "jax", "y = a / b", faults=("y = b / a",)),
    Row("div", "onnxruntime", "y = op('Div', a, b)"),
    Row("exp", "torch", "y = torch.exp(x)", faults=("y = torch.expm1(x)",)),
    Row("exp", "torch", "y = torch.exp2(x * 1.4426950408889634)", formats=("fp32",)),
    Row("exp", "jax", "y = jnp.exp(x)", faults=("y = jnp.exp2(x)",)),
    Row("exp", "onnxruntime", "y = op('Exp', x)"),
    Row("log", "torch", "y = torch.log(x)", faults=("y = torch.log1p(x)", "y = torch.log2(x)")),
    Row("log", "jax", "y = jnp.log(x)", faults=("y = jnp.log(x + 1e-2)",)),
    Row("log", "onnxruntime", "y = op('Log', x)"),
    Row("rsqrt", "torch", "y = torch.rsqrt(x)", faults=("y = torch.rsqrt(x + 1e-2)",)),
    Row("rsqrt", "torch", "y = 1 / torch.sqrt(x)"),
    Row("rsqrt", "jax", "y = jax.lax.rsqrt(x)", faults=("y = jnp.sqrt(x)",)),
    Row("rsqrt", "onnxruntime", "y = op('Reciprocal', op('Sqrt', x))"),
    Row("reciprocal", "torch", "y = torch.reciprocal(x)", faults=("y = 1 / (x + 1e-2)",)),
    Row("reciprocal", "jax", "y = 1 / x", faults=("y = 1 / (x * x)",)),
    Row("reciprocal", "onnxruntime", "y = op('Reciprocal', x)"),
)

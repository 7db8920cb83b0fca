"""Matrix products, attention and convolutions as torch, jax and onnxruntime compute them."""

from __future__ import annotations

from benchmarks.kernels.rows import Row

SHORT = (1, 2, 40, 32)
LONG = (1, 1, 100, 32)
"""Shapes of attention's q; a block of flash attention has 32 to 512 keys."""
ATTENTION = "F.scaled_dot_product_attention"
SCORES = "s = q @ k.transpose(-1, -2) * q.shape[-1]**-0.5"
JAX_ATTENTION = "jnp.moveaxis(jax.nn.dot_product_attention(q_, k_, v_{more}), 2, 1)"
JAX_HEADS = "q_, k_, v_ = (jnp.moveaxis(x, 1, 2) for x in (q, k, v)); "
ONNX_SCORES = (
    "kt = op('Transpose', k, perm=[0, 1, 3, 2]); s = op('Mul', op('MatMul', q, kt), [0.125])"
)
CONVOLUTION = (
    "y = jax.lax.conv_general_dilated(x, weight, (stride,) * {rank},"
    " [(padding, padding)] * {rank}) + bias.reshape((-1,) + (1,) * {rank})"
)

_MATMUL = (
    Row(
        "matmul",
        "torch",
        "y = a @ b",
        faults=(
            "y = a[:, 1:] @ b[1:]",
            "y = a @ b.T",
            "y = a.to(torch.bfloat16).to(a.dtype) @ b",
            "y = (a @ b) * 1.01",
            "y = a[:, :-32] @ b[:-32]",
        ),
    ),
    Row("matmul", "torch", "y = a @ b", shape=(4, 33, 130), parameters={"columns": 65}),
    Row("matmul", "torch", "y = torch.einsum('mk,kn->mn', a, b)", shape=(12, 1000)),
    Row("matmul", "jax", "y = a @ b", faults=("y = a @ b + a", "y = a.at[:, 0].set(0) @ b")),
    Row("matmul", "onnxruntime", "y = op('MatMul', a, b)"),
    Row("matmul_bw", "torch", "y = a @ b", ("a", "b"), ("y = a @ b * 1.01", "y = a @ b.T")),
    Row("matmul_bw", "torch", "y = a @ b", ("a", "b"), shape=(3, 40, 64)),
    Row("matmul_bw", "jax", "y = a @ b", ("a", "b")),
)
_LINEAR = (
    Row(
        "linear",
        "torch",
        "y = F.linear(x, weight, bias)",
        faults=(
            "y = F.linear(x, weight)",
            "y = F.linear(x, weight, bias.roll(1))",
            "y = F.linear(x, weight.T, bias)",
            "y = F.linear(x.roll(1, 0), weight, bias)",
        ),
    ),
    Row(
        "linear", "torch", "y = x @ weight.T + bias", shape=(5, 17, 96), parameters={"features": 40}
    ),
    Row("linear", "jax", "y = x @ weight.T + bias", faults=("y = x @ weight.T - bias",)),
    Row("linear", "onnxruntime", "y = op('Gemm', x, weight, bias, transB=1)"),
    Row(
        "linear_activation",
        "torch",
        "y = F.gelu(F.linear(x, weight, bias))",
        faults=(
            "y = F.gelu(F.linear(x, weight, bias), approximate='tanh')",
            "y = F.gelu(F.linear(x, weight)) + bias",
            "y = F.silu(F.linear(x, weight, bias))",
        ),
    ),
    Row(
        "linear_activation",
        "torch",
        "y = F.silu(F.linear(x, weight, bias))",
        parameters={"activation": "silu"},
        faults=("y = F.silu(F.linear(x, weight))",),
    ),
    Row(
        "linear_activation",
        "jax",
        "y = jax.nn.gelu(x @ weight.T + bias, approximate=False)",
        faults=("y = jax.nn.gelu(x @ weight.T + bias)",),
    ),
    Row(
        "linear_activation",
        "jax",
        "y = jax.nn.relu(x @ weight.T + bias)",
        parameters={"activation": "relu"},
        faults=("y = jax.nn.leaky_relu(x @ weight.T + bias)",),
    ),
    Row(
        "linear_activation",
        "onnxruntime",
        "y = op('Relu', op('Gemm', x, weight, bias, transB=1))",
        parameters={"activation": "relu"},
    ),
    Row(
        "linear_bw",
        "torch",
        "b = torch.zeros_like(dy[0], requires_grad=True);"
        " x.requires_grad_(); weight.requires_grad_(); y = F.linear(x, weight, b);"
        " dx, dweight, dbias = torch.autograd.grad(y, (x, weight, b), dy)",
        faults=(
            "dx = dy @ weight; dweight = dy.T @ x; dbias = dy[1:].sum(0)",
            "dx = dy @ weight; dweight = dy[:-1].T @ x[:-1]; dbias = dy.sum(0)",
            "dx = dy @ weight.T; dweight = dy.T @ x; dbias = dy.sum(0)",
        ),
    ),
    Row(
        "linear_bw",
        "jax",
        "_, pull = jax.vjp(lambda x, w, b: x @ w.T + b, x, weight, jnp.zeros_like(dy[0]));"
        " dx, dweight, dbias = pull(dy)",
        faults=("dx = dy @ weight; dweight = dy.T @ x; dbias = dy.mean(0)",),
    ),
)
_ATTENTION = (
    Row(
        "attention",
        "torch",
        f"y = {ATTENTION}(q, k, v)",
        faults=(
            f"y = {ATTENTION}(q, k, v, scale=1 / q.shape[-1])",
            f"y = {ATTENTION}(q, k, v, is_causal=True)",
            f"y = {ATTENTION}(q, k[:, :, :-1], v[:, :, :-1])",
            f"y = {ATTENTION}(q, k.roll(1, 2), v)",
            f"y = {ATTENTION}(q, k, v) * 1.01",
        ),
        shape=SHORT,
    ),
    Row(
        "attention",
        "torch",
        f"y = {ATTENTION}(q, k, v, is_causal=True)",
        faults=(
            f"y = {ATTENTION}(q, k, v)",
            f"y = {ATTENTION}(q, k, v, attn_mask=torch.ones(100, 100).tril(1).bool())",
        ),
        shape=LONG,
        parameters={"causal": True},
    ),
    Row(
        "attention",
        "torch",
        f"y = {ATTENTION}(q, k, v, enable_gqa=True)",
        faults=(f"y = {ATTENTION}(q, k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1))",),
        shape=(1, 2, 24, 32),
        parameters={"share": 2},
    ),
    Row(
        "attention",
        "torch",
        f"{SCORES}; y = torch.softmax(s, -1) @ v",
        faults=(f"{SCORES}; y = torch.softmax(s, -2) @ v", f"{SCORES}; y = torch.exp(s) @ v"),
        shape=SHORT,
    ),
    Row(
        "attention",
        "jax",
        JAX_HEADS + "y = " + JAX_ATTENTION.format(more=""),
        faults=(JAX_HEADS + "y = " + JAX_ATTENTION.format(more=", scale=0.2"),),
        formats=("fp32", "bf16"),
        shape=SHORT,
    ),
    Row(
        "attention",
        "jax",
        JAX_HEADS + "y = " + JAX_ATTENTION.format(more=", is_causal=True"),
        faults=(JAX_HEADS + "y = " + JAX_ATTENTION.format(more=""),),
        formats=("fp32", "bf16"),
        shape=SHORT,
        parameters={"causal": True},
    ),
    Row(
        "attention",
        "onnxruntime",
        f"{ONNX_SCORES}; y = op('MatMul', op('Softmax', s, axis=-1), v)",
        faults=(f"{ONNX_SCORES}; y = op('MatMul', op('Softmax', s, axis=-2), v)",),
        shape=(1, 2, 40, 64),
    ),
    Row(
        "attention_biased",
        "torch",
        f"y = {ATTENTION}(q, k, v, attn_mask=bias)",
        faults=(
            f"y = {ATTENTION}(q, k, v)",
            f"y = {ATTENTION}(q, k, v, attn_mask=bias.T)",
            f"y = {ATTENTION}(q, k, v, attn_mask=bias.roll(1, 1))",
        ),
        shape=SHORT,
    ),
    Row(
        "attention_biased",
        "jax",
        JAX_HEADS + "y = " + JAX_ATTENTION.format(more=", bias=bias[None, None]"),
        faults=(JAX_HEADS + "y = " + JAX_ATTENTION.format(more=", bias=-bias[None, None]"),),
        formats=("fp32", "bf16"),
        shape=SHORT,
    ),
    Row(
        "attention_masked",
        "torch",
        f"y = {ATTENTION}(q, k, v, attn_mask=mask.bool())",
        faults=(
            f"y = {ATTENTION}(q, k, v, attn_mask=mask.bool().roll(1, 1))",
            f"y = {ATTENTION}(q, k, v, attn_mask=mask.to(q.dtype))",
            f"y = {ATTENTION}(q, k, v)",
        ),
        shape=SHORT,
    ),
    Row(
        "attention_masked",
        "jax",
        JAX_HEADS + "y = " + JAX_ATTENTION.format(more=", mask=mask[None, None] != 0"),
        faults=(JAX_HEADS + "y = " + JAX_ATTENTION.format(more=", mask=mask[None, None] == 0"),),
        formats=("fp32", "bf16"),
        shape=SHORT,
    ),
    Row(
        "attention_bw",
        "torch",
        f"y = {ATTENTION}(q, k, v)",
        ("q", "k", "v"),
        (
            f"y = {ATTENTION}(q, k, v, scale=0.2)",
            f"y = {ATTENTION}(q, k.detach() * 1.01, v) + 0 * k",
        ),
        shape=SHORT,
    ),
    Row(
        "attention_bw",
        "torch",
        f"{SCORES}; y = torch.softmax(s, -1) @ v",
        ("q", "k", "v"),
        shape=SHORT,
    ),
    Row(
        "attention_bw",
        "jax",
        JAX_HEADS + "y = " + JAX_ATTENTION.format(more=""),
        ("q", "k", "v"),
        formats=("fp32", "bf16"),
        shape=SHORT,
    ),
)
_CONVOLUTION = (
    Row(
        "conv1d",
        "torch",
        "y = F.conv1d(x, weight, bias, stride, padding)",
        faults=(
            "y = F.conv1d(x, weight.flip(-1), bias, stride, padding)",
            "y = F.conv1d(x, weight, None, stride, padding)",
            "y = F.conv1d(F.pad(x, (2, 0)), weight, bias, stride)",
            "y = F.conv1d(x[:, 1:], weight[:, 1:], bias, stride, padding)",
        ),
    ),
    Row("conv1d", "jax", CONVOLUTION.format(rank=1), faults=("y = x + bias[:, None]",)),
    Row(
        "conv1d",
        "onnxruntime",
        "y = op('Conv', x, weight, bias, pads=[1, 1])",
        faults=("y = op('Conv', x, weight, bias, pads=[2, 0])",),
        formats=("fp32",),
    ),
    Row(
        "conv2d",
        "torch",
        "y = F.conv2d(x, weight, bias, stride, padding)",
        faults=(
            "y = F.conv2d(x, weight.flip(-1), bias, stride, padding)",
            "y = F.conv2d(x, weight.transpose(-1, -2), bias, stride, padding)",
            "y = F.conv2d(x.roll(1, -1), weight, bias, stride, padding)",
        ),
    ),
    Row(
        "conv2d",
        "torch",
        "y = F.conv2d(x, weight, bias, stride, padding)",
        shape=(1, 8, 15, 15),
        parameters={"stride": 2, "size": 5, "padding": 2, "channels": 12},
    ),
    Row("conv2d", "jax", CONVOLUTION.format(rank=2)),
    Row(
        "conv2d",
        "onnxruntime",
        "y = op('Conv', x, weight, bias, pads=[1, 1, 1, 1])",
        faults=("y = op('Conv', x, weight, bias, pads=[2, 1, 0, 1])",),
        formats=("fp32",),
    ),
)
ROWS = (*_MATMUL, *_LINEAR, *_ATTENTION, *_CONVOLUTION)

"""Pooling, reductions, indices, rotary embedding, Adam and quantization in torch, jax and ONNX."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.kernels.rows import Row

WINDOW = (
    "shape, steps = (1, 1, size, size), (1, 1, stride, stride);"
    " sides = ((0, 0), (0, 0), (padding, padding), (padding, padding));"
    " inf, zero = jnp.array(jnp.inf, x.dtype), jnp.array(0, x.dtype); "
)
_POOLING = (
    Row(
        "max_pool2d",
        "torch",
        "y = F.max_pool2d(x, size, stride, padding)",
        faults=(
            "y = F.max_pool2d(x.abs(), size, stride, padding)",
            "y = F.max_pool2d(F.pad(x, (1, 1, 1, 1)), size, stride)",
            "y = F.max_pool2d(x.roll(1, -1), size, stride, padding)",
            "y = F.avg_pool2d(x, size, stride, padding)",
        ),
    ),
    Row(
        "max_pool2d",
        "jax",
        WINDOW + "y = jax.lax.reduce_window(x, -inf, jax.lax.max, shape, steps, sides)",
        faults=(WINDOW + "y = jax.lax.reduce_window(x, zero, jax.lax.max, shape, steps, sides)",),
    ),
    Row(
        "max_pool2d",
        "onnxruntime",
        "y = op('MaxPool', x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])",
        formats=("fp32",),
    ),
    Row(
        "average_pool2d",
        "torch",
        "y = F.avg_pool2d(x, size, stride, padding)",
        faults=(
            "y = F.avg_pool2d(x, size, stride, padding, count_include_pad=False)",
            "y = F.avg_pool2d(x, size, stride, padding, divisor_override=8)",
        ),
    ),
    Row(
        "average_pool2d",
        "jax",
        WINDOW + "y = jax.lax.reduce_window(x, zero, jax.lax.add, shape, steps, sides) / size**2",
    ),
    Row(
        "average_pool2d",
        "onnxruntime",
        "y = op('AveragePool', x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1],"
        " count_include_pad=1)",
        formats=("fp32",),
    ),
)
_REDUCTIONS = (
    Row(
        "sum",
        "torch",
        "y = x.sum(-1)",
        faults=("y = x[:, 1:].sum(-1)", "y = x[:, :-32].sum(-1)", "y = x.abs().sum(-1)"),
    ),
    Row("sum", "torch", "y = torch.einsum('rn->r', x)", shape=(33, 777)),
    Row("sum", "jax", "y = x.sum(-1)", faults=("y = x.sum(-1) * 1.01",)),
    Row("sum", "onnxruntime", "y = op('ReduceSum', x, [-1], keepdims=0)"),
    Row("mean", "torch", "y = x.mean(-1)", faults=("y = x.sum(-1) / (x.shape[-1] - 1)",)),
    Row("mean", "torch", "y = x.mean(-1)", shape=(7, 5000)),
    Row("mean", "jax", "y = x.mean(-1)", faults=("y = x[:, :-1].mean(-1)",)),
    Row("mean", "onnxruntime", "y = op('ReduceMean', x, [-1], keepdims=0)"),
    Row(
        "variance",
        "torch",
        "y = x.var(-1, correction=ddof)",
        faults=("y = x.var(-1, correction=0)", "y = x.std(-1)", "y = x.square().mean(-1)"),
    ),
    Row("variance", "torch", "y = x.var(-1, correction=0)", parameters={"ddof": 0}, shape=(40, 96)),
    Row("variance", "jax", "y = x.var(-1, ddof=ddof)", faults=("y = x.var(-1)",)),
    Row(
        "max",
        "torch",
        "y = x.amax(-1)",
        faults=("y = x.abs().amax(-1)", "y = x[:, :-32].amax(-1)", "y = x.amin(-1)"),
    ),
    Row("max", "jax", "y = x.max(-1)", faults=("y = jnp.maximum(x.max(-1), 3)",)),
    Row("max", "onnxruntime", "y = op('ReduceMax', x, [-1], keepdims=0)"),
    Row(
        "cumsum",
        "torch",
        "y = x.cumsum(-1)",
        faults=(
            "y = x.cumsum(-1) - x",
            "y = x.flip(-1).cumsum(-1).flip(-1)",
            "y = torch.cat([x[:, :512].cumsum(-1), x[:, 512:].cumsum(-1)], -1)",
        ),
    ),
    Row("cumsum", "torch", "y = x.cumsum(-1)", shape=(8, 100)),
    Row("cumsum", "jax", "y = x.cumsum(-1)", faults=("y = x.cumsum(-1) + x[:, :1]",)),
    Row("cumsum", "onnxruntime", "y = op('CumSum', x, op('Cast', [-1], to=7))", formats=("fp32",)),
)
_INDICES = (
    Row(
        "embedding",
        "torch",
        "y = F.embedding(indices, table)",
        faults=(
            "y = F.embedding((indices + 1) % table.shape[0], table)",
            "y = F.embedding(indices.roll(1, 0), table)",
            "y = F.embedding(indices, table, padding_idx=None) * 1.01",
        ),
    ),
    Row("embedding", "jax", "y = jnp.take(table, indices, axis=0)"),
    Row("embedding", "onnxruntime", "y = op('Gather', table, indices, axis=0)"),
    Row(
        "topk",
        "torch",
        "y = x.topk(k).values",
        faults=(
            "y = x.topk(k, largest=False).values",
            "y = x.abs().topk(k).values",
            "y = x[:, :-32].topk(k).values",
        ),
    ),
    Row(
        "topk",
        "jax",
        "y = jax.lax.top_k(x, k)[0]",
        faults=("y = jax.lax.top_k(x, k + 1)[0][:, 1:]",),
    ),
    Row("topk", "onnxruntime", "y = op('TopK', x, [k], outputs=2)[0]"),
)
HALVES = "x1, x2 = x[..., :32], x[..., 32:]; "
PAIRS = "x1, x2 = x[..., ::2], x[..., 1::2]; "
TURNED = "x1 * cos - x2 * sin, x2 * cos + x1 * sin"
ONNX_ROTARY = (
    "import numpy; at = numpy.tile(numpy.arange(64), (2, 1));"
    " y = op('RotaryEmbedding', x, at, {}, domain='com.microsoft', interleaved={})"
)
_ROTARY = (
    Row(
        "rotary",
        "torch",
        f"{HALVES}y = torch.cat([{TURNED}], -1)",
        faults=(
            f"{PAIRS}y = torch.stack([{TURNED}], -1).flatten(-2)",
            f"{HALVES}y = torch.cat([x1 * cos + x2 * sin, x2 * cos - x1 * sin], -1)",
            f"{HALVES}cos = cos.roll(1, 0); y = torch.cat([{TURNED}], -1)",
        ),
    ),
    Row(
        "rotary",
        "torch",
        f"{HALVES}y = x * torch.cat([cos, cos], -1)"
        " + torch.cat([-x2, x1], -1) * torch.cat([sin, sin], -1)",
        faults=(
            f"{HALVES}y = x * torch.cat([cos, cos], -1)"
            " + torch.cat([x2, x1], -1) * torch.cat([sin, sin], -1)",
        ),
    ),
    Row("rotary", "jax", f"{HALVES}y = jnp.concatenate([{TURNED}], -1)"),
    Row(
        "rotary",
        "onnxruntime",
        ONNX_ROTARY.format("cos, sin", 0),
        faults=(ONNX_ROTARY.format("cos, sin", 1), ONNX_ROTARY.format("sin, cos", 0)),
    ),
    Row(
        "rotary_interleaved",
        "torch",
        "turn = torch.complex(cos.float(), sin.float());"
        " pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)).contiguous());"
        " y = torch.view_as_real(pairs * turn).flatten(-2).to(x.dtype)",
        faults=(f"{HALVES}y = torch.cat([{TURNED}], -1)",),
    ),
    Row("rotary_interleaved", "jax", f"{PAIRS}y = jnp.stack([{TURNED}], -1).reshape(x.shape)"),
    Row("rotary_interleaved", "onnxruntime", ONNX_ROTARY.format("cos, sin", 1)),
)


def _torch_adam(name: str, options: str) -> str:
    """Return one step of an optimizer of torch."""
    return (
        "p = torch.nn.Parameter(weight.clone()); p.grad = gradient.clone();"
        f" optimizer = torch.optim.{name}([p], rate, (beta1, beta2), {options});"
        " state = {'step': torch.tensor(step - 1.0), 'exp_avg': m.clone(),"
        " 'exp_avg_sq': v.clone()}; optimizer.state[p] = state; optimizer.step();"
        " next_weight, next_m, next_v = p, state['exp_avg'], state['exp_avg_sq']"
    )


MOMENTS = (
    "next_m = beta1 * m + (1 - beta1) * gradient; next_v = beta2 * v + (1 - beta2) * gradient**2; "
)
HATS = "m_hat = next_m / (1 - beta1**step); v_hat = next_v / (1 - beta2**step); "
UPDATE = "m_hat / (v_hat**0.5 + epsilon)"
SHORT_NUMBERS = {"beta1": 0.875, "beta2": 0.9375, "rate": 0.015625}
"""In bf16 the usual beta2 is 1, so that v never shrinks: no right kernel has a state in 16 bits."""


def _adam_rows(formats: tuple[str, ...], numbers: Mapping[str, float]) -> tuple[Row, ...]:
    """Return the rows of formats, which can represent the numbers."""
    with_decay = {**numbers, "decay": 0.25} if numbers else numbers
    return (
        Row(
            "adam",
            "torch",
            _torch_adam("Adam", "epsilon, foreach=False"),
            faults=(
                f"{MOMENTS}next_weight = weight - rate * next_m / (next_v.sqrt() + epsilon)",
                f"{MOMENTS}{HATS}next_weight = weight + rate * {UPDATE}",
                f"{MOMENTS}step += 1; {HATS}next_weight = weight - rate * {UPDATE}",
                f"{MOMENTS}{HATS}next_v = v; next_weight = weight - rate * {UPDATE}",
            ),
            formats=formats,
            parameters=numbers,
        ),
        Row(
            "adam",
            "torch",
            _torch_adam("Adam", "epsilon, fused=True"),
            formats=formats,
            parameters=numbers,
        ),
        Row(
            "adam",
            "jax",
            f"{MOMENTS}{HATS}next_weight = weight - rate * {UPDATE}",
            faults=(f"{MOMENTS}{HATS}next_weight = weight - rate * m_hat / v_hat",),
            formats=formats,
            parameters=numbers,
        ),
        Row(
            "adamw",
            "torch",
            _torch_adam("AdamW", "epsilon, decay, foreach=False"),
            faults=(_torch_adam("Adam", "epsilon, decay"), _torch_adam("AdamW", "epsilon, 0.0")),
            formats=formats,
            parameters=with_decay,
        ),
        Row(
            "adamw",
            "torch",
            _torch_adam("AdamW", "epsilon, decay, fused=True"),
            formats=formats,
            parameters=with_decay,
        ),
        Row(
            "adamw",
            "jax",
            f"{MOMENTS}{HATS}next_weight = weight - rate * ({UPDATE} + decay * weight)",
            faults=(f"{MOMENTS}{HATS}next_weight = weight - rate * {UPDATE}",),
            formats=formats,
            parameters=with_decay,
        ),
    )


_ADAM = (*_adam_rows(("fp32",), {}), *_adam_rows(("bf16", "fp16"), SHORT_NUMBERS))
TORCH_SCALE = "scale = x.abs().amax(-1, keepdim=True) / "
JAX_SCALE = "scale = jnp.abs(x).max(-1, keepdims=True) / "
_QUANTIZATION = (
    Row("quantize_bf16", "torch", "y = x.bfloat16().to(x.dtype)", formats=("fp32",)),
    Row(
        "quantize_bf16",
        "jax",
        "y = jax.lax.reduce_precision(x, 8, 7)",
        faults=("y = jax.lax.reduce_precision(x, 8, 6)",),
        formats=("fp32",),
    ),
    Row(
        "quantize_fp8",
        "torch",
        f"{TORCH_SCALE}448; y = (x / scale).to(torch.float8_e4m3fn).to(x.dtype)",
        faults=(
            f"{TORCH_SCALE}448; y = (x / scale).to(torch.float8_e5m2).to(x.dtype)",
            f"{TORCH_SCALE}240; y = (x / scale).to(torch.float8_e4m3fn).to(x.dtype)",
        ),
    ),
    Row(
        "quantize_fp8",
        "jax",
        f"{JAX_SCALE}448; y = (x / scale).astype(jnp.float8_e4m3fn).astype(x.dtype)",
    ),
    Row(
        "quantize_int8",
        "torch",
        f"{TORCH_SCALE}127; y = (x / scale).round().clamp(-127, 127)",
        faults=(
            f"{TORCH_SCALE}127; y = (x / scale).trunc()",
            f"{TORCH_SCALE}128; y = (x / scale).round().clamp(-127, 127)",
            "scale = x.amax(-1, keepdim=True) / 127; y = (x / scale).round().clamp(-127, 127)",
        ),
    ),
    Row(
        "quantize_int8",
        "jax",
        f"{JAX_SCALE}127; y = jnp.clip(jnp.round(x / scale), -127, 127)",
        faults=(f"{JAX_SCALE}127; y = (x / scale).astype(jnp.int8).astype(x.dtype)",),
    ),
)
ROWS = (*_POOLING, *_REDUCTIONS, *_INDICES, *_ROTARY, *_ADAM, *_QUANTIZATION)

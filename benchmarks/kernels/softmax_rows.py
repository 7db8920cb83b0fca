"""Softmax, log-softmax and cross entropy as torch, jax and onnxruntime compute them."""

from __future__ import annotations

from benchmarks.kernels.rows import Row

HOT = "jax.nn.one_hot(labels, x.shape[-1], dtype=x.dtype)"
LABELED = (192, 48)
"""More rows than usual: a loss has one value per row."""
ROWS = (
    Row(
        "softmax", "torch", "y = torch.softmax(x, -1)", faults=("y = torch.softmax(1.01 * x, -1)",)
    ),
    Row(
        "softmax",
        "torch",
        "e = torch.exp(x - x.amax(-1, keepdim=True)); y = e / e.sum(-1, keepdim=True)",
    ),
    Row(
        "softmax",
        "jax",
        "y = jax.nn.softmax(x)",
        faults=("y = jax.nn.sigmoid(x) / jax.nn.sigmoid(x).sum(-1, keepdims=True)",),
    ),
    Row("softmax", "onnxruntime", "y = op('Softmax', x, axis=-1)"),
    Row(
        "softmax_bw",
        "torch",
        "dx = torch._softmax_backward_data(dy, y, -1, y.dtype)",
        faults=(
            "dx = torch._softmax_backward_data(dy, y, -1, y.dtype) * 1.01",
            "dx = y * (dy - (y * dy)[..., 1:].sum(-1, keepdim=True))",
            "dx = y * dy",
        ),
    ),
    Row("softmax_bw", "torch", "dx = y * (dy - (y * dy).sum(-1, keepdim=True))"),
    Row(
        "softmax_bw",
        "jax",
        "dx = y * (dy - (y * dy).sum(-1, keepdims=True))",
        faults=("dx = y * (dy + (y * dy).sum(-1, keepdims=True))",),
    ),
    Row(
        "log_softmax",
        "torch",
        "y = torch.log_softmax(x, -1)",
        faults=("y = x - torch.log(torch.exp(x[..., 1:]).sum(-1, keepdim=True))",),
    ),
    Row("log_softmax", "torch", "y = torch.log(torch.softmax(x, -1))", formats=("fp32",)),
    Row("log_softmax", "torch", "y = x - torch.logsumexp(x, -1, keepdim=True)"),
    Row(
        "log_softmax",
        "jax",
        "y = jax.nn.log_softmax(x)",
        faults=("y = jax.nn.log_softmax(1.002 * x)",),
    ),
    Row("log_softmax", "onnxruntime", "y = op('LogSoftmax', x, axis=-1)"),
    Row(
        "log_softmax_bw",
        "torch",
        "dx = torch._log_softmax_backward_data(dy, y, -1, y.dtype)",
        faults=("dx = dy - torch.exp(y)", "dx = dy - torch.exp(y) * dy"),
    ),
    Row("log_softmax_bw", "jax", "dx = dy - jnp.exp(y) * dy.sum(-1, keepdims=True)"),
    Row(
        "cross_entropy",
        "torch",
        "loss = F.cross_entropy(x, labels, reduction='none')",
        faults=(
            "loss = F.cross_entropy(x, labels, reduction='none', label_smoothing=0.01)",
            "loss = F.cross_entropy(x, labels.roll(1), reduction='none')",
        ),
        shape=LABELED,
    ),
    Row(
        "cross_entropy",
        "torch",
        "loss = torch.logsumexp(x, -1) - x.gather(-1, labels[:, None])[:, 0]",
        shape=LABELED,
    ),
    Row(
        "cross_entropy",
        "jax",
        "loss = jax.nn.logsumexp(x, -1) - jnp.take_along_axis(x, labels[:, None], -1)[:, 0]",
        shape=LABELED,
    ),
    Row(
        "cross_entropy",
        "jax",
        "loss = -jnp.take_along_axis(jax.nn.log_softmax(x), labels[:, None], -1)[:, 0]",
        faults=(
            "loss = -jnp.take_along_axis(jax.nn.log_softmax(x), labels[:, None] - 1, -1)[:, 0]",
        ),
        shape=LABELED,
    ),
    Row(
        "cross_entropy",
        "onnxruntime",
        "loss = op('SoftmaxCrossEntropyLoss', x, labels, reduction='none')",
        shape=LABELED,
    ),
    Row(
        "cross_entropy_bw",
        "torch",
        "loss = F.cross_entropy(x.requires_grad_(), labels, reduction='none');"
        " dx, = torch.autograd.grad(loss, x, dloss)",
        faults=("dx = torch.softmax(x, -1) * dloss[:, None]",),
        shape=LABELED,
    ),
    Row(
        "cross_entropy_bw",
        "jax",
        f"dx = (jax.nn.softmax(x) - {HOT}) * dloss[:, None]",
        faults=(f"dx = jax.nn.softmax(x) - {HOT}",),
        shape=LABELED,
    ),
)

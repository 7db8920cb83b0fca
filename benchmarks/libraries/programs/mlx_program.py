"""MLX's norms on the CPU: the fused ones, modules, composites, and their gradients."""

# mypy: ignore-errors
# It runs in the interpreter of a library, whose packages our own checks do not have.

import importlib.metadata

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from protocol import Kernel, serve

DTYPES = {"fp32": mx.float32, "bf16": mx.bfloat16, "fp16": mx.float16}


def tensors(inputs, run):
    """Return the inputs as arrays of the run's format."""
    return {name: mx.array(values).astype(DTYPES[run.format]) for name, values in inputs.items()}


def fused_layer_norm(t, run):
    """mx.fast.layer_norm."""
    return mx.fast.layer_norm(t["x"], t["gamma"], t["beta"], run.epsilon)


def fused_rms_norm(t, run):
    """mx.fast.rms_norm."""
    return mx.fast.rms_norm(t["x"], t["gamma"], run.epsilon)


def composite_layer_norm(t, run):
    """LayerNorm from single operations; each stores its result in x's format."""
    x = t["x"]
    centered = x - mx.mean(x, -1, keepdims=True)
    variance = mx.mean(centered * centered, -1, keepdims=True)
    return centered * mx.rsqrt(variance + run.epsilon) * t["gamma"] + t["beta"]


def composite_rms_norm(t, run):
    """RMSNorm from single operations; each stores its result in x's format."""
    x = t["x"]
    return x * mx.rsqrt(mx.mean(x * x, -1, keepdims=True) + run.epsilon) * t["gamma"]


def upcast(function):
    """Return a function that computes in fp32 and rounds once."""

    def function_in_fp32(t, run):
        wide = {name: values.astype(mx.float32) for name, values in t.items()}
        return function(wide, run).astype(t["x"].dtype)

    return function_in_fp32


def group_norm(t, run):
    """nn.GroupNorm in PyTorch's order of groups; MLX has the channels last."""
    module = nn.GroupNorm(run.groups, t["x"].shape[1], run.epsilon, pytorch_compatible=True)
    module.update({"weight": t["gamma"], "bias": t["beta"]})
    return mx.moveaxis(module(mx.moveaxis(t["x"], 1, -1)), -1, 1)


def composite_group_norm(t, run):
    """Group norm from single operations; each stores its result in x's format."""
    x = t["x"]
    rows = x.reshape(x.shape[0], run.groups, -1)
    centered = rows - mx.mean(rows, -1, keepdims=True)
    variance = mx.mean(centered * centered, -1, keepdims=True)
    normalized = (centered * mx.rsqrt(variance + run.epsilon)).reshape(x.shape)
    channels = (1, -1) + (1,) * (x.ndim - 2)
    return normalized * t["gamma"].reshape(channels) + t["beta"].reshape(channels)


def array(values):
    """Return a float32 array."""
    return np.array(values.astype(mx.float32))


def forward(function):
    """Return a kernel that runs a forward function."""
    return lambda inputs, run: {"y": array(function(tensors(inputs, run), run))}


def backward(function, names):
    """Return a kernel that runs the gradient of a forward function."""

    def run_backward(inputs, run):
        t = tensors(inputs, run)
        t["beta"] = mx.zeros_like(t["gamma"])

        def call(*leaves):
            return function(dict(zip(names, leaves, strict=True)), run)

        _, gradients = mx.vjp(call, [t[name] for name in names], [t["dy"]])
        return {f"d{name}": array(g) for name, g in zip(names, gradients, strict=True)}

    return run_backward


LAYER_NORMS = {
    "fast.layer_norm": fused_layer_norm,
    "composite": composite_layer_norm,
    "upcast": upcast(composite_layer_norm),
}
RMS_NORMS = {
    "fast.rms_norm": fused_rms_norm,
    "composite": composite_rms_norm,
    "upcast": upcast(composite_rms_norm),
}
GROUP_NORMS = {"nn.GroupNorm": group_norm, "composite": composite_group_norm}
FORWARD = {"layernorm_fw": LAYER_NORMS, "rmsnorm_fw": RMS_NORMS, "groupnorm_fw": GROUP_NORMS}
BACKWARD = {
    "layernorm_bw": (LAYER_NORMS, ("x", "gamma", "beta")),
    "rmsnorm_bw": (RMS_NORMS, ("x", "gamma")),
}
KERNELS = [
    *(
        Kernel(name, kind, forward(function))
        for kind, functions in FORWARD.items()
        for name, function in functions.items()
    ),
    *(
        Kernel(name, kind, backward(function, names))
        for kind, (functions, names) in BACKWARD.items()
        for name, function in functions.items()
    ),
]

if __name__ == "__main__":
    mx.set_default_device(mx.cpu)
    serve(KERNELS, {"mlx": importlib.metadata.version("mlx"), "numpy": np.__version__})

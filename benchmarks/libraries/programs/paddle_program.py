"""Paddle's norms on the CPU, composites, and their gradients."""

# mypy: ignore-errors
# It runs in the interpreter of a library, whose packages our own checks do not have.

import numpy as np
import paddle
import paddle.nn.functional as functional
from protocol import Kernel, serve

DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


def tensors(inputs, run):
    """Return the inputs as tensors of the run's format."""
    return {
        name: paddle.to_tensor(values).astype(DTYPES[run.format]).detach()
        for name, values in inputs.items()
    }


def fused_layer_norm(t, run):
    """functional.layer_norm."""
    return functional.layer_norm(t["x"], t["gamma"].shape, t["gamma"], t["beta"], run.epsilon)


def functional_rms_norm(t, run):
    """functional.rms_norm."""
    return functional.rms_norm(t["x"], t["gamma"].shape, t["gamma"], run.epsilon)


def fused_group_norm(t, run):
    """functional.group_norm."""
    return functional.group_norm(t["x"], run.groups, run.epsilon, t["gamma"], t["beta"])


def composite_layer_norm(t, run):
    """LayerNorm from single operations; each stores its result in x's format."""
    x = t["x"]
    centered = x - x.mean(-1, keepdim=True)
    variance = (centered * centered).mean(-1, keepdim=True)
    return centered * paddle.rsqrt(variance + run.epsilon) * t["gamma"] + t["beta"]


def composite_rms_norm(t, run):
    """RMSNorm from single operations; each stores its result in x's format."""
    x = t["x"]
    return x * paddle.rsqrt((x * x).mean(-1, keepdim=True) + run.epsilon) * t["gamma"]


def upcast(function):
    """Return a function that computes in fp32 and rounds once."""

    def function_in_fp32(t, run):
        wide = {name: values.astype("float32") for name, values in t.items()}
        return function(wide, run).astype(t["x"].dtype)

    return function_in_fp32


def array(tensor):
    """Return a float32 array."""
    return tensor.astype("float32").numpy()


def forward(function):
    """Return a kernel that runs a forward function."""

    def run_forward(inputs, run):
        with paddle.no_grad():
            return {"y": array(function(tensors(inputs, run), run))}

    return run_forward


def backward(function, names):
    """Return a kernel that runs the gradient of a forward function."""

    def run_backward(inputs, run):
        t = tensors(inputs, run)
        if "beta" in names:
            t["beta"] = paddle.zeros_like(t["gamma"])
        for name in names:
            t[name].stop_gradient = False
        gradients = paddle.grad([function(t, run)], [t[name] for name in names], [t["dy"]])
        return {f"d{name}": array(g) for name, g in zip(names, gradients, strict=True)}

    return run_backward


LAYER_NORMS = {
    "functional.layer_norm": fused_layer_norm,
    "composite": composite_layer_norm,
    "upcast": upcast(composite_layer_norm),
}
RMS_NORMS = {
    "functional.rms_norm": functional_rms_norm,
    "composite": composite_rms_norm,
    "upcast": upcast(composite_rms_norm),
}
KERNELS = [
    *(Kernel(name, "layernorm_fw", forward(function)) for name, function in LAYER_NORMS.items()),
    *(
        Kernel(name, "layernorm_bw", backward(function, ("x", "gamma", "beta")))
        for name, function in LAYER_NORMS.items()
    ),
    *(Kernel(name, "rmsnorm_fw", forward(function)) for name, function in RMS_NORMS.items()),
    *(
        Kernel(name, "rmsnorm_bw", backward(function, ("x", "gamma")))
        for name, function in RMS_NORMS.items()
    ),
    Kernel("functional.group_norm", "groupnorm_fw", forward(fused_group_norm)),
]

if __name__ == "__main__":
    paddle.set_device("cpu")
    serve(KERNELS, {"paddle": paddle.__version__, "numpy": np.__version__})

"""Liger's Triton kernels: on a GPU, or on the CPU in Triton's interpreter (TRITON_INTERPRET=1).

The interpreter stores bf16 as integers, and it multiplies them as integers: in bf16 it can run
only the kernels that convert to fp32 first. It has no libdevice, so `rsqrt` is Triton's.
"""

# mypy: ignore-errors
# It runs in the interpreter of a library, whose packages our own checks do not have.

import importlib.metadata
import os

import liger_kernel.ops.group_norm
import liger_kernel.ops.layer_norm
import liger_kernel.ops.rms_norm
import torch
import triton.language as tl
from liger_kernel.ops.group_norm import LigerGroupNormFunction
from liger_kernel.ops.layer_norm import LigerLayerNormFunction
from liger_kernel.ops.rms_norm import LigerRMSNormFunction
from protocol import Kernel, serve

IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = os.environ.get("DEVICE", "cpu")
MULTIPLIED = ("fp32", "fp16") if IS_INTERPRETED else ("fp32", "bf16", "fp16")
"""Formats of the kernels that multiply in the format of x."""
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def inverse_root(value):
    """Return 1/sqrt; the interpreter replaces tl.rsqrt while a kernel runs."""
    return tl.rsqrt(value)


if IS_INTERPRETED:
    for operations in (
        liger_kernel.ops.group_norm,
        liger_kernel.ops.layer_norm,
        liger_kernel.ops.rms_norm,
    ):
        operations.rsqrt = inverse_root


def tensors(inputs, run):
    """Return the inputs as tensors of the run's format that have gradients."""
    converted = {
        name: torch.from_numpy(values.copy()).to(DEVICE, DTYPES[run.format])
        for name, values in inputs.items()
    }
    for name, tensor in converted.items():
        tensor.requires_grad_(name != "dy")
    return converted


def array(tensor):
    """Return a float32 array."""
    return tensor.detach().float().cpu().numpy()


def layer_norm(t, run):
    """Run the LayerNorm kernel."""
    return LigerLayerNormFunction.apply(t["x"], t["gamma"], t["beta"], run.epsilon)


def rms_norm(casting):
    """Return the RMSNorm kernel with a casting mode."""

    def function(t, run):
        return LigerRMSNormFunction.apply(t["x"], t["gamma"], run.epsilon, 0.0, casting, False)

    return function


def group_norm(t, run):
    """Run the group norm kernel."""
    x = t["x"]
    shape = x.shape
    rows = x.reshape(shape[0], shape[1], -1)
    y = LigerGroupNormFunction.apply(rows, t["gamma"], t["beta"], shape[1], run.groups, run.epsilon)
    return (y[0] if isinstance(y, tuple) else y).reshape(shape)


def forward(function):
    """Return a kernel that runs a forward function."""
    return lambda inputs, run: {"y": array(function(tensors(inputs, run), run))}


def backward(function, names):
    """Return a kernel that runs the gradient of a forward function."""

    def run_backward(inputs, run):
        t = tensors(inputs, run)
        if "beta" in names:
            t["beta"] = torch.zeros_like(t["gamma"], requires_grad=True)
        y = function(t, run)
        gradients = torch.autograd.grad(y, [t[name] for name in names], t["dy"])
        return {f"d{name}": array(g) for name, g in zip(names, gradients, strict=True)}

    return run_backward


RMS_NORMS = {f"RMSNorm ({casting})": rms_norm(casting) for casting in ("llama", "gemma")}
KERNELS = [
    Kernel("LayerNorm", "layernorm_fw", forward(layer_norm)),
    Kernel("LayerNorm", "layernorm_bw", backward(layer_norm, ("x", "gamma", "beta"))),
    *(
        Kernel(name, "rmsnorm_fw", forward(function), MULTIPLIED)
        for name, function in RMS_NORMS.items()
    ),
    *(
        Kernel(name, "rmsnorm_bw", backward(function, ("x", "gamma")), MULTIPLIED)
        for name, function in RMS_NORMS.items()
    ),
    Kernel("GroupNorm", "groupnorm_fw", forward(group_norm), MULTIPLIED),
]

if __name__ == "__main__":
    torch.set_num_threads(1)
    versions = {
        "liger-kernel": importlib.metadata.version("liger-kernel"),
        "triton": importlib.metadata.version("triton"),
        "torch": torch.__version__,
    }
    serve(KERNELS, versions)

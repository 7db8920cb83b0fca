"""tinygrad's norms on the CPU, and their gradients."""

# mypy: ignore-errors
# It runs in the interpreter of a library, whose packages our own checks do not have.

import importlib.metadata

import numpy as np
from protocol import Kernel, serve
from tinygrad import Tensor, dtypes
from tinygrad.nn import GroupNorm, LayerNorm, RMSNorm

DTYPES = {"fp32": dtypes.float32, "bf16": dtypes.bfloat16, "fp16": dtypes.float16}


def tensors(inputs, run):
    """Return the inputs as tensors of the run's format."""
    return {
        name: Tensor(np.array(values)).cast(DTYPES[run.format]).realize()
        for name, values in inputs.items()
    }


def layer_norm(t, run):
    """nn.LayerNorm."""
    module = LayerNorm(t["gamma"].shape[0], run.epsilon)
    module.weight, module.bias = t["gamma"], t["beta"]
    return module(t["x"])


def rms_norm(t, run):
    """nn.RMSNorm."""
    module = RMSNorm(t["gamma"].shape[0], run.epsilon)
    module.weight = t["gamma"]
    return module(t["x"])


def group_norm(t, run):
    """nn.GroupNorm."""
    module = GroupNorm(run.groups, t["gamma"].shape[0], run.epsilon)
    module.weight, module.bias = t["gamma"], t["beta"]
    return module(t["x"])


def array(tensor):
    """Return a float32 array of the values as they are stored in the tensor's format."""
    return tensor.contiguous().realize().cast(dtypes.float32).numpy()


def forward(function):
    """Return a kernel that runs a forward function."""
    return lambda inputs, run: {"y": array(function(tensors(inputs, run), run))}


def backward(function, names):
    """Return a kernel that runs the gradient of a forward function."""

    def run_backward(inputs, run):
        t = tensors(inputs, run)
        if "beta" in names:
            t["beta"] = Tensor.zeros_like(t["gamma"]).contiguous().realize()
        leaves = [t[name] for name in names]
        gradients = function(t, run).gradient(*leaves, gradient=t["dy"])
        return {f"d{name}": array(g) for name, g in zip(names, gradients, strict=True)}

    return run_backward


KERNELS = [
    Kernel("nn.LayerNorm", "layernorm_fw", forward(layer_norm)),
    Kernel("nn.LayerNorm", "layernorm_bw", backward(layer_norm, ("x", "gamma", "beta"))),
    Kernel("nn.RMSNorm", "rmsnorm_fw", forward(rms_norm)),
    Kernel("nn.RMSNorm", "rmsnorm_bw", backward(rms_norm, ("x", "gamma"))),
    Kernel("nn.GroupNorm", "groupnorm_fw", forward(group_norm)),
]

if __name__ == "__main__":
    versions = {"tinygrad": importlib.metadata.version("tinygrad"), "numpy": np.__version__}
    serve(KERNELS, versions)

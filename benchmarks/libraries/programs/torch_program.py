"""PyTorch's kernels: fused ones, composites of 16-bit operations, and gradients.

They run on the device that DEVICE names. On a GPU they also run as torch.compile makes them: Triton
kernels that fuse a whole norm.
"""

# mypy: ignore-errors
# It runs in the interpreter of a library, whose packages our own checks do not have.

import os

import numpy as np
import torch
import torch.nn.functional as functional
from protocol import Kernel, serve

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
DEVICE = os.environ.get("DEVICE", "cpu")


def tensors(inputs, run, gradients=False):
    """Return the inputs as tensors of the run's format."""
    converted = {
        name: torch.from_numpy(np.array(values)).to(DEVICE, DTYPES[run.format])
        for name, values in inputs.items()
    }
    if gradients:
        for name, tensor in converted.items():
            tensor.requires_grad_(name != "dy")
    return converted


def arrays(**outputs):
    """Return float32 arrays of the outputs."""
    return {name: tensor.detach().float().cpu().numpy() for name, tensor in outputs.items()}


def fused_layer_norm(t, run):
    """F.layer_norm over the last dimension."""
    beta = t.get("beta")
    if beta is None:
        beta = t.setdefault("beta", torch.zeros_like(t["gamma"], requires_grad=True))
    return functional.layer_norm(t["x"], t["gamma"].shape, t["gamma"], beta, run.epsilon)


def composite_layer_norm(t, run):
    """LayerNorm from single operations; each stores its result in x's format."""
    x = t["x"]
    centered = x - x.mean(-1, keepdim=True)
    variance = (centered * centered).mean(-1, keepdim=True)
    y = centered * torch.rsqrt(variance + run.epsilon) * t["gamma"]
    if "beta" not in t:
        t["beta"] = torch.zeros_like(t["gamma"], requires_grad=True)
    return y + t["beta"]


def var_mean_layer_norm(t, run):
    """LayerNorm from torch.var_mean and a quotient, each stored in x's format."""
    variance, mean = torch.var_mean(t["x"], -1, correction=0, keepdim=True)
    if "beta" not in t:
        t["beta"] = torch.zeros_like(t["gamma"], requires_grad=True)
    return (t["x"] - mean) / torch.sqrt(variance + run.epsilon) * t["gamma"] + t["beta"]


def upcast_layer_norm(t, run):
    """LayerNorm from single fp32 operations, rounded once."""
    if "beta" not in t:
        t["beta"] = torch.zeros_like(t["gamma"], requires_grad=True)
    wide = {name: tensor.float() for name, tensor in t.items()}
    return composite_layer_norm(wide, run).to(t["x"].dtype)


def functional_rms_norm(t, run):
    """F.rms_norm."""
    return functional.rms_norm(t["x"], t["gamma"].shape, t["gamma"], run.epsilon)


def module_rms_norm(t, run):
    """nn.RMSNorm."""
    module = torch.nn.RMSNorm(t["gamma"].shape, run.epsilon, device=DEVICE, dtype=t["x"].dtype)
    module.weight = torch.nn.Parameter(t["gamma"])
    return module(t["x"])


def llama_rms_norm(t, run):
    """RMSNorm as Llama's code computes it: fp32 up to x^, then 16 bits."""
    x = t["x"].float()
    normalized = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + run.epsilon)
    return t["gamma"] * normalized.to(t["x"].dtype)


def composite_rms_norm(t, run):
    """RMSNorm from single operations; each stores its result in x's format."""
    x = t["x"]
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + run.epsilon) * t["gamma"]


def upcast_rms_norm(t, run):
    """RMSNorm from single fp32 operations, rounded once."""
    wide = {name: tensor.float() for name, tensor in t.items()}
    return composite_rms_norm(wide, run).to(t["x"].dtype)


def fused_group_norm(t, run):
    """F.group_norm."""
    return functional.group_norm(t["x"], run.groups, t["gamma"], t["beta"], run.epsilon)


def composite_group_norm(t, run):
    """Group norm from single operations; each stores its result in x's format."""
    x = t["x"]
    rows = x.reshape(x.shape[0], run.groups, -1)
    centered = rows - rows.mean(-1, keepdim=True)
    variance = (centered * centered).mean(-1, keepdim=True)
    normalized = (centered * torch.rsqrt(variance + run.epsilon)).reshape(x.shape)
    channels = (1, -1) + (1,) * (x.dim() - 2)
    return normalized * t["gamma"].reshape(channels) + t["beta"].reshape(channels)


def upcast_group_norm(t, run):
    """Group norm from single fp32 operations, rounded once."""
    wide = {name: tensor.float() for name, tensor in t.items()}
    return composite_group_norm(wide, run).to(t["x"].dtype)


def layer_norm_as_group_norm(t, run):
    """LayerNorm by native_group_norm with one group and a channel per feature."""
    x = t["x"]
    return functional.group_norm(x.reshape(x.shape[0], -1), 1, t["gamma"], t["beta"], run.epsilon)


def native_statistics(t, run):
    """torch.native_layer_norm."""
    return torch.native_layer_norm(t["x"], t["gamma"].shape, t["gamma"], t["beta"], run.epsilon)[0]


def batch_norm(t, run):
    """LayerNorm without gamma by torch.native_batch_norm on the transpose, then gamma and beta."""
    normalized = torch.native_batch_norm(t["x"].T, None, None, None, None, True, 0.0, run.epsilon)
    return normalized[0].T * t["gamma"] + t["beta"]


def compiled(function):
    """Return the function as torch.compile makes it for each shape."""
    graph = torch.compile(function, dynamic=False)

    def call(t, run):
        if function in LAYER_NORMS.values() and "beta" not in t:
            t["beta"] = torch.zeros_like(t["gamma"], requires_grad=True)
        return graph(t, run)

    return call


def forward(function):
    """Return a kernel that runs a forward function."""

    def run_forward(inputs, run):
        with torch.no_grad():
            return arrays(y=function(tensors(inputs, run), run))

    return run_forward


def backward(function):
    """Return a kernel that runs the gradient of a forward function."""

    def run_backward(inputs, run):
        t = tensors(inputs, run, gradients=True)
        y = function(t, run)
        names = [name for name in ("x", "gamma", "beta") if name in t]
        gradients = torch.autograd.grad(y, [t[name] for name in names], t["dy"])
        return arrays(**{f"d{name}": g for name, g in zip(names, gradients, strict=True)})

    return run_backward


LAYER_NORMS = {
    "F.layer_norm": fused_layer_norm,
    "composite": composite_layer_norm,
    "var_mean": var_mean_layer_norm,
    "upcast": upcast_layer_norm,
}
RMS_NORMS = {
    "F.rms_norm": functional_rms_norm,
    "llama": llama_rms_norm,
    "composite": composite_rms_norm,
    "upcast": upcast_rms_norm,
}
GROUP_NORMS = {
    "F.group_norm": fused_group_norm,
    "composite": composite_group_norm,
    "upcast": upcast_group_norm,
}
NORMS = {"layernorm": LAYER_NORMS, "rmsnorm": RMS_NORMS, "groupnorm": GROUP_NORMS}
KERNELS = [
    *(Kernel(name, "layernorm_fw", forward(function)) for name, function in LAYER_NORMS.items()),
    Kernel("native_layer_norm", "layernorm_fw", forward(native_statistics)),
    Kernel("native_batch_norm", "layernorm_fw", forward(batch_norm)),
    Kernel("native_group_norm", "layernorm_fw", forward(layer_norm_as_group_norm)),
    *(Kernel(name, "layernorm_bw", backward(function)) for name, function in LAYER_NORMS.items()),
    *(Kernel(name, "rmsnorm_fw", forward(function)) for name, function in RMS_NORMS.items()),
    Kernel("nn.RMSNorm", "rmsnorm_fw", forward(module_rms_norm)),
    *(Kernel(name, "rmsnorm_bw", backward(function)) for name, function in RMS_NORMS.items()),
    *(Kernel(name, "groupnorm_fw", forward(function)) for name, function in GROUP_NORMS.items()),
]


def compiled_kernels():
    """Return each norm, and its gradient, as torch.compile makes it."""
    kernels = []
    for norm, functions in NORMS.items():
        for name, function in functions.items():
            kernels.append(Kernel(f"{name}, compiled", f"{norm}_fw", forward(compiled(function))))
            if norm != "groupnorm":
                gradient = backward(compiled(function))
                kernels.append(Kernel(f"{name}, compiled", f"{norm}_bw", gradient))
    return kernels


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if DEVICE == "cuda":
        import torch._dynamo

        # each shape, format and norm is compiled: past its limit dynamo would run eager kernels
        torch._dynamo.config.recompile_limit = 1_000_000
        torch._dynamo.config.accumulated_recompile_limit = 1_000_000
        torch._dynamo.config.fail_on_recompile_limit_hit = True
        KERNELS += compiled_kernels()
    serve(KERNELS, {"torch": torch.__version__, "numpy": np.__version__})

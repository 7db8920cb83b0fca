"""The norms of JAX and flax on the CPU: linen's modules, jnp composites, and their gradients."""

# mypy: ignore-errors
# It runs in the interpreter of a library, whose packages our own checks do not have.

import flax
import flax.linen as linen
import jax
import jax.numpy as jnp
import numpy as np
from protocol import Kernel, serve

DTYPES = {"fp32": jnp.float32, "bf16": jnp.bfloat16, "fp16": jnp.float16}


def tensors(inputs, run):
    """Return the inputs as arrays of the run's format."""
    return {
        name: jnp.asarray(a, jnp.float32).astype(DTYPES[run.format]) for name, a in inputs.items()
    }


def linen_layer_norm(fast):
    """Return linen.LayerNorm with the fast variance E[x^2] - E[x]^2, or the two-pass one."""

    def function(t, run):
        dtype = t["x"].dtype
        module = linen.LayerNorm(run.epsilon, dtype, dtype, use_fast_variance=fast)
        parameters = {"scale": t["gamma"], "bias": t["beta"]}
        return module.apply({"params": parameters}, t["x"])

    return function


def linen_rms_norm(t, run):
    """linen.RMSNorm."""
    dtype = t["x"].dtype
    module = linen.RMSNorm(run.epsilon, dtype, dtype)
    return module.apply({"params": {"scale": t["gamma"]}}, t["x"])


def linen_group_norm(fast):
    """Return linen.GroupNorm; flax has the channels last."""

    def function(t, run):
        dtype = t["x"].dtype
        module = linen.GroupNorm(
            num_groups=run.groups,
            epsilon=run.epsilon,
            dtype=dtype,
            param_dtype=dtype,
            use_fast_variance=fast,
        )
        parameters = {"scale": t["gamma"], "bias": t["beta"]}
        y = module.apply({"params": parameters}, jnp.moveaxis(t["x"], 1, -1))
        return jnp.moveaxis(y, -1, 1)

    return function


def composite_layer_norm(t, run):
    """LayerNorm from jnp operations in x's format."""
    x = t["x"]
    mean = jnp.mean(x, -1, keepdims=True)
    variance = jnp.var(x, -1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + run.epsilon) * t["gamma"] + t["beta"]


def standardized_layer_norm(t, run):
    """LayerNorm by jax.nn.standardize, then gamma and beta."""
    return jax.nn.standardize(t["x"], -1, epsilon=run.epsilon) * t["gamma"] + t["beta"]


def upcast_layer_norm(t, run):
    """LayerNorm from fp32 operations, rounded once."""
    wide = {name: a.astype(jnp.float32) for name, a in t.items()}
    return composite_layer_norm(wide, run).astype(t["x"].dtype)


def composite_rms_norm(t, run):
    """RMSNorm from jnp operations in x's format."""
    x = t["x"]
    mean_square = jnp.mean(jnp.square(x), -1, keepdims=True)
    return x * jax.lax.rsqrt(mean_square + run.epsilon) * t["gamma"]


def gemma_rms_norm(t, run):
    """RMSNorm with an fp32 x^ that is rounded before gamma multiplies it."""
    x = t["x"].astype(jnp.float32)
    normalized = x / jnp.sqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + run.epsilon)
    return normalized.astype(t["x"].dtype) * t["gamma"]


def upcast_rms_norm(t, run):
    """RMSNorm from fp32 operations, rounded once."""
    wide = {name: a.astype(jnp.float32) for name, a in t.items()}
    return composite_rms_norm(wide, run).astype(t["x"].dtype)


def composite_group_norm(t, run):
    """Group norm from jnp operations in x's format."""
    x = t["x"]
    rows = x.reshape(x.shape[0], run.groups, -1)
    mean = jnp.mean(rows, -1, keepdims=True)
    variance = jnp.var(rows, -1, keepdims=True)
    normalized = ((rows - mean) * jax.lax.rsqrt(variance + run.epsilon)).reshape(x.shape)
    channels = (1, -1) + (1,) * (x.ndim - 2)
    return normalized * t["gamma"].reshape(channels) + t["beta"].reshape(channels)


def forward(function, jit):
    """Return a kernel that runs a forward function, compiled or operation by operation."""

    def run_forward(inputs, run):
        def call(t):
            return function(t, run)

        t = tensors(inputs, run)
        y = (compiled(function, call, run) if jit else call)(t)
        return {"y": y.astype(jnp.float32)}

    return run_forward


def backward(function, jit):
    """Return a kernel that runs the gradient of a forward function."""

    def run_backward(inputs, run):
        def gradients(leaves, dy):
            return jax.vjp(lambda t: function(t, run), leaves)[1](dy)[0]

        t = tensors(inputs, run)
        dy = t.pop("dy")
        if function in LAYER_NORMS.values():
            t["beta"] = jnp.zeros_like(t["gamma"])
        results = (compiled(function, gradients, run) if jit else gradients)(t, dy)
        return {f"d{name}": a.astype(jnp.float32) for name, a in results.items()}

    return run_backward


CACHE = {}


def compiled(function, call, run):
    """Return the compiled call; the same function and parameters are compiled once."""
    key = (function, call.__name__, run.epsilon, run.groups)
    return CACHE.setdefault(key, jax.jit(call))


LAYER_NORMS = {
    "linen.LayerNorm fast variance": linen_layer_norm(True),
    "linen.LayerNorm two-pass": linen_layer_norm(False),
    "composite": composite_layer_norm,
    "standardize": standardized_layer_norm,
    "upcast": upcast_layer_norm,
}
RMS_NORMS = {
    "linen.RMSNorm": linen_rms_norm,
    "composite": composite_rms_norm,
    "gemma": gemma_rms_norm,
    "upcast": upcast_rms_norm,
}
GROUP_NORMS = {
    "linen.GroupNorm fast variance": linen_group_norm(True),
    "linen.GroupNorm two-pass": linen_group_norm(False),
    "composite": composite_group_norm,
}
FORWARD = {"layernorm_fw": LAYER_NORMS, "rmsnorm_fw": RMS_NORMS, "groupnorm_fw": GROUP_NORMS}
BACKWARD = {"layernorm_bw": LAYER_NORMS, "rmsnorm_bw": RMS_NORMS}


def all_kernels():
    """Return every function as a jitted kernel, and the composites operation by operation too."""
    kernels = []
    for wrapper, kinds in ((forward, FORWARD), (backward, BACKWARD)):
        for kind, functions in kinds.items():
            for name, function in functions.items():
                kernels.append(Kernel(f"{name} (jit)", kind, wrapper(function, True)))
                if "linen" not in name:
                    kernels.append(Kernel(f"{name} (eager)", kind, wrapper(function, False)))
    return kernels


if __name__ == "__main__":
    versions = {"jax": jax.__version__, "flax": flax.__version__, "numpy": np.__version__}
    serve(all_kernels(), versions)

"""OpenVINO's norms on the CPU: small graphs that its compiler fuses, in each element type."""

# mypy: ignore-errors
# It runs in the interpreter of a library, whose packages our own checks do not have.

import numpy as np
import openvino as ov
import openvino.opset13 as ops
from protocol import Kernel, serve

ELEMENTS = {"fp32": ov.Type.f32, "bf16": ov.Type.bf16, "fp16": ov.Type.f16}
CORE = ov.Core()
COMPILED = {}


def number(value, element):
    """Return a scalar constant."""
    return ops.constant(np.array([value], np.float32), element)


def mvn_layer_norm(x, gamma, beta, run, element):
    """Mean-variance normalization, then gamma and beta."""
    axes = ops.constant(np.array([-1], np.int64))
    return ops.add(ops.multiply(ops.mvn(x, axes, True, run.epsilon, "inside_sqrt"), gamma), beta)


def decomposed_layer_norm(x, gamma, beta, run, element):
    """LayerNorm from single operations."""
    axes = ops.constant(np.array([-1], np.int64))
    centered = ops.subtract(x, ops.reduce_mean(x, axes, True))
    variance = ops.reduce_mean(ops.multiply(centered, centered), axes, True)
    root = ops.sqrt(ops.add(variance, number(run.epsilon, element)))
    return ops.add(ops.multiply(ops.divide(centered, root), gamma), beta)


def rms_norm(x, gamma, beta, run, element):
    """RMSNorm from single operations, a pattern that the compiler fuses."""
    axes = ops.constant(np.array([-1], np.int64))
    square = ops.power(x, number(2.0, element))
    mean_square = ops.reduce_mean(square, axes, True)
    root = ops.sqrt(ops.add(mean_square, number(run.epsilon, element)))
    return ops.multiply(gamma, ops.multiply(x, ops.divide(number(1.0, element), root)))


def group_norm(x, gamma, beta, run, element):
    """The operation GroupNormalization."""
    return ops.group_normalization(x, gamma, beta, run.groups, run.epsilon)


def compiled(function, shapes, run):
    """Return the compiled model of a function; the same one is compiled once."""
    key = (function, tuple(sorted(shapes.items())), run.format, run.epsilon, run.groups)
    if key not in COMPILED:
        element = ELEMENTS[run.format]
        parameters = {name: ops.parameter(shape, ov.Type.f32) for name, shape in shapes.items()}
        t = {name: ops.convert(node, element.get_type_name()) for name, node in parameters.items()}
        y = function(t["x"], t["gamma"], t.get("beta"), run, element)
        # NumPy reads fp16 outputs, but not bf16 ones
        result = y if run.format == "fp16" else ops.convert(y, "f32")
        model = ov.Model([result], list(parameters.values()), "norm")
        settings = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}
        COMPILED[key] = (list(shapes), CORE.compile_model(model, "CPU", settings))
    return COMPILED[key]


def forward(function):
    """Return a kernel that runs a graph."""

    def run_forward(inputs, run):
        t = {name: np.ascontiguousarray(values) for name, values in inputs.items()}
        names, model = compiled(function, {name: a.shape for name, a in t.items()}, run)
        return {"y": model([t[name] for name in names])[0]}

    return run_forward


KERNELS = [
    Kernel("MVN", "layernorm_fw", forward(mvn_layer_norm)),
    Kernel("decomposed", "layernorm_fw", forward(decomposed_layer_norm)),
    Kernel("RMS", "rmsnorm_fw", forward(rms_norm)),
    Kernel("GroupNormalization", "groupnorm_fw", forward(group_norm)),
]

if __name__ == "__main__":
    serve(KERNELS, {"openvino": ov.__version__, "numpy": np.__version__})

"""The norms of TensorFlow and Keras on the CPU: layers, tf.nn composites, and their gradients."""

# mypy: ignore-errors
# It runs in the interpreter of a library, whose packages our own checks do not have.

import keras
import numpy as np
import tensorflow as tf
from protocol import Kernel, serve

DTYPES = {"fp32": tf.float32, "bf16": tf.bfloat16, "fp16": tf.float16}


def tensors(inputs, run):
    """Return the inputs as tensors of the run's format."""
    return {name: tf.cast(tf.constant(a), DTYPES[run.format]) for name, a in inputs.items()}


def with_weights(layer, shape, weights):
    """Return a built layer whose weights are these tensors, so that gradients reach them."""
    layer.build(shape)
    for name, tensor in weights.items():
        object.__setattr__(layer, name, tensor)
    return layer


def keras_layer_norm(t, run):
    """keras.layers.LayerNormalization."""
    layer = keras.layers.LayerNormalization(epsilon=run.epsilon, dtype=t["x"].dtype.name)
    return with_weights(layer, t["x"].shape, {"gamma": t["gamma"], "beta": t["beta"]})(t["x"])


def keras_rms_norm(t, run):
    """keras.layers.RMSNormalization."""
    layer = keras.layers.RMSNormalization(epsilon=run.epsilon, dtype=t["x"].dtype.name)
    return with_weights(layer, t["x"].shape, {"scale": t["gamma"]})(t["x"])


def keras_group_norm(t, run):
    """keras.layers.GroupNormalization along axis 1."""
    layer = keras.layers.GroupNormalization(
        run.groups, axis=1, epsilon=run.epsilon, dtype=t["x"].dtype.name
    )
    return with_weights(layer, t["x"].shape, {"gamma": t["gamma"], "beta": t["beta"]})(t["x"])


def moments_layer_norm(t, run):
    """LayerNorm by tf.nn.moments and tf.nn.batch_normalization."""
    mean, variance = tf.nn.moments(t["x"], [-1], keepdims=True)
    return tf.nn.batch_normalization(
        t["x"], mean, variance, t["beta"], t["gamma"], tf.cast(run.epsilon, t["x"].dtype)
    )


def fused_layer_norm(t, run):
    """LayerNorm by the fused batch norm: rows are its channels; then gamma and beta."""
    rows, features = t["x"].shape
    ones, zeros = tf.ones([rows]), tf.zeros([rows])
    normalized, *_ = tf.compat.v1.nn.fused_batch_norm(
        tf.reshape(tf.transpose(t["x"]), [1, features, 1, rows]),
        ones,
        zeros,
        epsilon=run.epsilon,
        data_format="NHWC",
    )
    return tf.transpose(tf.reshape(normalized, [features, rows])) * t["gamma"] + t["beta"]


def composite_layer_norm(t, run):
    """LayerNorm from single operations; each stores its result in x's format."""
    x = t["x"]
    centered = x - tf.reduce_mean(x, -1, keepdims=True)
    variance = tf.reduce_mean(centered * centered, -1, keepdims=True)
    return centered * tf.math.rsqrt(variance + run.epsilon) * t["gamma"] + t["beta"]


def composite_rms_norm(t, run):
    """RMSNorm from single operations; each stores its result in x's format."""
    x = t["x"]
    mean_square = tf.reduce_mean(x * x, -1, keepdims=True)
    return x * tf.math.rsqrt(mean_square + run.epsilon) * t["gamma"]


def forward(function):
    """Return a kernel that runs a forward function."""

    def run_forward(inputs, run):
        return {"y": tf.cast(function(tensors(inputs, run), run), tf.float32).numpy()}

    return run_forward


def backward(function, names):
    """Return a kernel that runs the gradient of a forward function."""

    def run_backward(inputs, run):
        t = tensors(inputs, run)
        if "beta" in names:
            t["beta"] = tf.zeros_like(t["gamma"])
        with tf.GradientTape() as tape:
            tape.watch([t[name] for name in names])
            y = function(t, run)
        gradients = tape.gradient(y, [t[name] for name in names], t["dy"])
        return {
            f"d{name}": tf.cast(gradient, tf.float32).numpy()
            for name, gradient in zip(names, gradients, strict=True)
        }

    return run_backward


LAYER_NORMS = {
    "keras.LayerNormalization": keras_layer_norm,
    "nn.moments": moments_layer_norm,
    "fused_batch_norm": fused_layer_norm,
    "composite": composite_layer_norm,
}
RMS_NORMS = {"keras.RMSNormalization": keras_rms_norm, "composite": composite_rms_norm}
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
    Kernel("keras.GroupNormalization", "groupnorm_fw", forward(keras_group_norm)),
]

if __name__ == "__main__":
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    versions = {
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "numpy": np.__version__,
    }
    serve(KERNELS, versions)

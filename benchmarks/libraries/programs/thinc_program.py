"""thinc's LayerNorm in fp32, forward and backward. Its epsilon is 1e-8 and can't be changed."""

# mypy: ignore-errors
# It runs in the interpreter of a library, whose packages our own checks do not have.

import numpy as np
import thinc
from protocol import Kernel, serve
from thinc.api import LayerNorm

EPSILON = 1e-8


def model_of(inputs):
    """Return the initialized layer with these weights."""
    model = LayerNorm(nI=inputs["gamma"].shape[0])
    model.initialize()
    model.set_param("G", np.array(inputs["gamma"]))
    model.set_param("b", np.array(inputs.get("beta", np.zeros_like(inputs["gamma"]))))
    return model


def layer_norm(inputs, run):
    """Run the layer."""
    return {"y": model_of(inputs).predict(np.array(inputs["x"]))}


def layer_norm_gradients(inputs, run):
    """Run the layer and its backward function."""
    model = model_of(inputs)
    _, backpropagate = model(np.array(inputs["x"]), is_train=True)
    dx = backpropagate(np.array(inputs["dy"]))
    return {"dx": dx, "dgamma": model.get_grad("G"), "dbeta": model.get_grad("b")}


KERNELS = [
    Kernel("LayerNorm", "layernorm_fw", layer_norm, ("fp32",), epsilon=EPSILON),
    Kernel("LayerNorm", "layernorm_bw", layer_norm_gradients, ("fp32",), epsilon=EPSILON),
]

if __name__ == "__main__":
    serve(KERNELS, {"thinc": thinc.__version__, "numpy": np.__version__})

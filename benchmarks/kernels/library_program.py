"""Run expressions of a library for `benchmarks.kernels`, in the library's interpreter.

    python library_program.py LIBRARY REQUESTS ANSWERS

It imports NumPy and the library, and nothing of GoNoGo. Both files are pickles of lists. A request
has code, gradients, outputs (names), parameters, format, and inputs: float32 arrays whose values
the format has, and int32 arrays. Its answer is the problem, or the values and format by output.
"""

# mypy: ignore-errors
# It runs in the interpreter of a library, whose packages our own checks do not have.

import pickle
import sys
import warnings

import numpy as np

FORMATS = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "float64": "fp64"}


def format_of(dtype):
    """Return the name of a format; that of whole numbers is empty."""
    return FORMATS.get(str(dtype).rpartition(".")[2], "")


def values_of(code, names, gradients, namespace):
    """Return what code sets: the outputs, or y where gradients are asked."""
    space = dict(namespace)
    exec(code, space)
    return space["y"] if gradients else [space[name] for name in names]


def torch_runner(run, inputs):
    """Run torch code; it isn't compiled."""
    import torch

    torch.set_num_threads(1)
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[run["format"]]
    tensors = {
        name: torch.from_numpy(array).to(torch.int64 if array.dtype.kind == "i" else dtype)
        for name, array in inputs.items()
    }
    sources = [tensors[name].requires_grad_(True) for name in run["gradients"]]
    space = {"torch": torch, "F": torch.nn.functional, **run["parameters"], **tensors}
    values = values_of(run["code"], run["outputs"], run["gradients"], space)
    if sources:
        values = torch.autograd.grad(values, sources, tensors["dy"])
    values = [value.detach() for value in values]
    return [(value.double().numpy(), format_of(value.dtype)) for value in values]


def jax_runner(run, inputs):
    """Run jax code as one compiled function."""
    import jax
    import jax.numpy as jnp

    dtype = {"fp32": jnp.float32, "bf16": jnp.bfloat16, "fp16": jnp.float16}[run["format"]]
    tensors = {
        name: jnp.asarray(array, jnp.int32 if array.dtype.kind == "i" else dtype)
        for name, array in inputs.items()
    }
    fixed = {"jax": jax, "jnp": jnp, **run["parameters"]}

    def outputs(tensors):
        return values_of(run["code"], run["outputs"], run["gradients"], {**fixed, **tensors})

    def gradients(tensors):
        sources = {name: tensors[name] for name in run["gradients"]}
        _, pull = jax.vjp(lambda changed: outputs({**tensors, **changed}), sources)
        (slopes,) = pull(tensors["dy"])
        return [slopes[name] for name in run["gradients"]]

    values = jax.jit(gradients if run["gradients"] else outputs)(tensors)
    return [(np.asarray(value).astype(np.float64), format_of(value.dtype)) for value in values]


def onnxruntime_runner(run, inputs):
    """Run a model of the operations that code names."""
    import ml_dtypes
    import onnx
    import onnxruntime
    from onnx import helper, numpy_helper

    dtype = {"fp32": np.float32, "bf16": ml_dtypes.bfloat16, "fp16": np.float16}[run["format"]]
    arrays = {
        name: array.astype(np.int64 if array.dtype.kind == "i" else dtype)
        for name, array in inputs.items()
    }
    nodes, constants = [], []

    def named(value):
        if isinstance(value, str):
            return value
        array = np.asarray(value)
        constants.append(
            numpy_helper.from_array(
                array.astype(np.int64 if array.dtype.kind == "i" else dtype), f"c{len(constants)}"
            )
        )
        return constants[-1].name

    def op(kind, *args, outputs=1, **attributes):
        results = [f"v{len(nodes)}_{number}" for number in range(outputs)]
        nodes.append(helper.make_node(kind, [named(arg) for arg in args], results, **attributes))
        return results[0] if outputs == 1 else results

    names = {name: name for name in arrays}
    results = values_of(run["code"], run["outputs"], (), {"op": op, **run["parameters"], **names})
    types = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in arrays.items()}
    graph = helper.make_graph(
        nodes,
        "kernel",
        [helper.make_tensor_value_info(n, types[n], a.shape) for n, a in arrays.items()],
        [helper.make_empty_tensor_value_info(name) for name in results],
        constants,
    )
    opsets = [helper.make_opsetid("", 22), helper.make_opsetid("com.microsoft", 1)]
    model = onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=opsets))
    model.ir_version = 10
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    values = session.run(None, arrays)
    return [(value.astype(np.float64), format_of(value.dtype)) for value in values]


RUNNERS = {"torch": torch_runner, "jax": jax_runner, "onnxruntime": onnxruntime_runner}


def main(library, requests, answers):
    """Run all requests; write their answers."""
    warnings.simplefilter("ignore")
    results = []
    with open(requests, "rb") as source:
        runs = pickle.load(source)
    for run in runs:
        try:
            values = RUNNERS[library](run, run["inputs"])
            results.append(dict(zip(run["outputs"], values, strict=True)))
        except Exception as error:
            results.append(" ".join(f"{type(error).__name__}: {error}".split())[:200])
    with open(answers, "wb") as target:
        pickle.dump(results, target)


if __name__ == "__main__":
    main(*sys.argv[1:])

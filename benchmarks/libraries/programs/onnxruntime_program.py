"""onnxruntime's norms on the CPU, each a graph of one node; bf16 has no kernels there."""

# mypy: ignore-errors
# It runs in the interpreter of a library, whose packages our own checks do not have.

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper
from protocol import Kernel, serve

DTYPES = {"fp32": np.float32, "fp16": np.float16}
ELEMENTS = {"fp32": TensorProto.FLOAT, "fp16": TensorProto.FLOAT16}
FORMATS = ("fp32", "fp16")
OPSETS = (helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1))
SESSIONS = {}


def session(node, shapes, run, opsets):
    """Return the session of a graph with one node; the same graph is loaded once."""
    key = (node.SerializeToString(), tuple(sorted(shapes.items())), run.format, opsets[0].version)
    if key not in SESSIONS:
        element = ELEMENTS[run.format]
        inputs = [
            helper.make_tensor_value_info(name, element, shape) for name, shape in shapes.items()
        ]
        outputs = [helper.make_tensor_value_info("y", element, shapes["x"])]
        graph = helper.make_graph([node], "norm", inputs, outputs)
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        SESSIONS[key] = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    return SESSIONS[key]


def node_kernel(operator, names, domain="", opsets=OPSETS, prepare=None, **attributes):
    """Return a kernel that runs one node on the inputs of these names.

    prepare: from (arrays, run) to (arrays, further attributes).
    """

    def run_node(inputs, run):
        t = {name: np.asarray(a, DTYPES[run.format]) for name, a in inputs.items()}
        more = {}
        shape = t["x"].shape
        if prepare is not None:
            t, more = prepare(t, run)
        node = helper.make_node(
            operator, names, ["y"], domain=domain, epsilon=run.epsilon, **attributes, **more
        )
        shapes = {name: t[name].shape for name in names}
        feed = {name: t[name] for name in names}
        y = session(node, shapes, run, opsets).run(["y"], feed)[0]
        return {"y": y.reshape(shape).astype(np.float32)}

    return run_node


def two_parts(t, run):
    """Split x into its even and its odd columns: their sum is exact."""
    is_even = np.arange(t["x"].shape[-1]) % 2 == 0
    zero = t["x"].dtype.type(0)
    even, odd = np.where(is_even, t["x"], zero), np.where(is_even, zero, t["x"])
    return t | {"x": even[None], "skip": odd[None]}, {}


def grouped(t, run):
    """Name the groups."""
    return t, {"num_groups": run.groups}


RMS_OPSETS = (helper.make_opsetid("", 23),)
KERNELS = [
    Kernel(
        "LayerNormalization",
        "layernorm_fw",
        node_kernel("LayerNormalization", ["x", "gamma", "beta"], axis=-1),
        FORMATS,
    ),
    Kernel(
        "SkipLayerNormalization",
        "layernorm_fw",
        node_kernel(
            "SkipLayerNormalization",
            ["x", "skip", "gamma", "beta"],
            "com.microsoft",
            prepare=two_parts,
        ),
        FORMATS,
    ),
    Kernel(
        "SimplifiedLayerNormalization",
        "rmsnorm_fw",
        node_kernel("SimplifiedLayerNormalization", ["x", "gamma"], axis=-1),
        FORMATS,
    ),
    Kernel(
        "SkipSimplifiedLayerNormalization",
        "rmsnorm_fw",
        node_kernel(
            "SkipSimplifiedLayerNormalization",
            ["x", "skip", "gamma"],
            "com.microsoft",
            prepare=two_parts,
        ),
        FORMATS,
    ),
    Kernel(
        "RMSNormalization",
        "rmsnorm_fw",
        node_kernel("RMSNormalization", ["x", "gamma"], opsets=RMS_OPSETS, axis=-1),
        FORMATS,
    ),
    Kernel(
        "GroupNormalization",
        "groupnorm_fw",
        node_kernel("GroupNormalization", ["x", "gamma", "beta"], prepare=grouped),
        FORMATS,
    ),
]

if __name__ == "__main__":
    versions = {
        "onnxruntime": onnxruntime.__version__,
        "onnx": onnx.__version__,
        "numpy": np.__version__,
    }
    serve(KERNELS, versions)

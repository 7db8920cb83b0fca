"""Run ttnn's operations on the simulated Wormhole, in the simulator's interpreter.

Arguments: the folder of the ttnn executor, the cases as JSON, and a file of their inputs. It is
replaced by the outputs. `wrong` parameters are given to the operation: epsilon, or gamma's factor.
"""

import json
import sys

import numpy as np

sys.path.insert(0, sys.argv[1])

import ttnn
from ttnn_device import Device, compute_config, download, upload
from ttnn_generic import backward
from ttnn_layernorm import layer_norm, moreh_backward


def run(case, given):
    """Return a case's outputs by name."""
    operation, parameters = case["operation"], case["parameters"]
    shape, numerics = case["shape"], {"accumulate": case["dst"]}
    gamma = given.get("gamma", 1) * np.float32(parameters.get("factor", 1))
    test = {"shape": shape, "numerics": numerics, "epsilon": parameters.get("epsilon")}
    if operation == "ttnn.layer_norm":
        return layer_norm(test, given | {"gamma": gamma}, None)
    if operation == "moreh.layer_norm_backward":
        return moreh_backward(test, given | {"gamma": gamma})
    if operation == "ttnn.generic_op":
        return backward(test, given | {"gamma": gamma}, ())
    config = {"compute_kernel_config": compute_config({"fidelity": "hifi4"} | numerics)}
    if operation == "ttnn.softmax":
        y = ttnn.softmax(upload(given["x"][None, None], "bf16"), dim=-1, **config)
        return {"y": download(y, shape)}
    config["epsilon"] = parameters["epsilon"]
    if operation == "ttnn.rms_norm":
        weight = upload(gamma.reshape(1, 1, 1, -1), "bf16")
        y = ttnn.rms_norm(upload(given["x"][None, None], "bf16"), weight=weight, **config)
        return {"y": download(y, shape)}
    channels = np.swapaxes(given["x"], 1, 2)[:, None]
    y = ttnn.group_norm(
        upload(channels, "bf16"),
        num_groups=parameters["num_groups"],
        weight=row(gamma),
        bias=row(given["beta"]),
        core_grid=ttnn.CoreGrid(y=1, x=1),
        inplace=False,
        output_layout=ttnn.TILE_LAYOUT,
        **config,
    )
    return {"y": np.swapaxes(download(y, channels.shape)[:, 0], 1, 2)}


def row(values):
    """Return group norm's gamma or beta on the device, which it takes row by row."""
    host = ttnn.Tensor(np.ascontiguousarray(values.reshape(1, 1, -1, 32)), ttnn.bfloat16)
    return ttnn.to_device(host, Device.get())


cases, path = json.loads(sys.argv[2]), sys.argv[3]
with np.load(path) as stored:
    inputs = dict(stored)
outputs = {}
for number, case in enumerate(cases):
    prefix = f"{number}|"
    given = {name[len(prefix) :]: a for name, a in inputs.items() if name.startswith(prefix)}
    for name, values in run(case, given).items():
        outputs[prefix + name] = values
Device.close()
np.savez(path, **outputs)

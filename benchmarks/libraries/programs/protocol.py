"""Run the kernels of a library for `benchmarks.libraries`, in the library's interpreter.

It imports NumPy only, and nothing of GoNoGo. A program calls `serve` with its kernels:

    python torch_program.py --list                # a JSON object: versions and kernels
    python torch_program.py MANIFEST REPORT       # run all runs of a manifest

MANIFEST is a JSON list of runs: kernel, kind, format, epsilon, groups, input, output (paths of
.npz files). REPORT receives one JSON line per run: its output and null, or the problem.

A tensor is a float32 array. In a 16-bit format its values are those of the format, so conversion
to it is exact.
"""

# mypy: ignore-errors
# It runs in the interpreter of a library, whose packages our own checks do not have.

import json
import sys
import warnings

import numpy as np


class Kernel:
    """A kernel of a library: its name, its kind, its formats, and the function that runs it.

    The function receives the inputs by name, and a Run. It returns the outputs by name. A kernel
    whose epsilon can't be chosen names it; None is the run's.
    """

    def __init__(self, name, kind, function, formats=("fp32", "bf16", "fp16"), epsilon=None):
        self.name = name
        self.kind = kind
        self.function = function
        self.formats = tuple(formats)
        self.epsilon = epsilon


class Run:
    """The parameters of a run: format, epsilon and groups."""

    def __init__(self, fields):
        self.format = fields["format"]
        self.epsilon = fields["epsilon"]
        self.groups = fields["groups"]


def serve(kernels, versions):
    """List the kernels, or run a manifest, as the arguments say."""
    warnings.simplefilter("ignore")
    if sys.argv[1] == "--list":
        rows = [
            {
                "name": kernel.name,
                "kind": kernel.kind,
                "formats": kernel.formats,
                "epsilon": kernel.epsilon,
            }
            for kernel in kernels
        ]
        print(json.dumps({"versions": versions, "kernels": rows}))
        return
    by_name = {(kernel.kind, kernel.name): kernel for kernel in kernels}
    with open(sys.argv[1]) as source:
        runs = json.load(source)
    with open(sys.argv[2], "w") as report:
        for fields in runs:
            problem = None
            try:
                kernel = by_name[(fields["kind"], fields["kernel"])]
                with np.load(fields["input"]) as stored:
                    inputs = {name: stored[name] for name in stored.files}
                outputs = kernel.function(inputs, Run(fields))
                np.savez_compressed(
                    fields["output"],
                    **{name: np.asarray(array, np.float32) for name, array in outputs.items()},
                )
            except Exception as error:
                problem = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            line = {"output": fields["output"], "problem": problem}
            report.write(json.dumps(line) + "\n")
            report.flush()

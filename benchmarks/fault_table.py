"""Judge every entry of the fault table as a wrong kernel: is it flagged, and is it named?

`python -m benchmarks.fault_table [--every N]` runs ten kernels of gonogo.kernels in NumPy's
float32 with each fault that a right kernel doesn't have, rounds the output to bf16, and judges it
with nothing declared. Faults that change fewer than one value in 20 don't count. A fault that has
the same effect as the planted one is its name, too.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks.kernels.wrong import dishonest
from gonogo.arithmetic import Evaluation, value_of
from gonogo.arithmetic.evaluation import Edits
from gonogo.arithmetic.formats import round_to
from gonogo.arithmetic.values import source_value
from gonogo.faults.changes import Fault
from gonogo.graph import Graph, trace
from gonogo.judgment import judge
from gonogo.judgment.verdict import OutputJudgment
from gonogo.kernels.kernel import Kernel
from gonogo.kernels.registry import kernel_of
from gonogo.spec.verdicts import Explanation

Array = NDArray[Any]
FORM: Final = "bf16"
SHAPES: Final = {"x": (24, 128), "gamma": (128,), "beta": (128,), "dy": (24, 128)}
KERNELS: Final = (
    *("layernorm_fw", "layernorm_bw", "layernorm_bw_own", "rmsnorm_fw", "rmsnorm_bw"),
    *("rmsnorm_bw_own", "groupnorm_fw", "batchnorm_fw", "softmax", "l2norm"),
)
STATISTICS: Final = {"mean": (24, 1), "rstd": (24, 1)}
IMAGES: Final = {"x": (6, 16, 24), "gamma": (16,), "beta": (16,)}
PARAMETERS: Final[Mapping[str, Any]] = {"epsilon": 1e-3, "num_groups": 4}
LEAST_CHANGED: Final = 1 / 20
ALIKE: Final = 2.0**-9
"""How near effects are that no bf16 tells apart."""
SIZE: Final = 2.0**-5
"""The size of fitted faults, such as a factor."""
FLAGGED: Final = (Explanation.unexplained, Explanation.suspect)


def drawn(kernel: Kernel) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return inputs of a kernel in bf16, and its parameters."""
    names = inspect.signature(kernel.reference).parameters
    is_image = kernel.name in ("groupnorm_fw", "batchnorm_fw")
    shapes = SHAPES | STATISTICS | (IMAGES if is_image else {})
    random = np.random.default_rng(7)
    inputs = {n: random.normal(0.5, 1, shapes[n]) for n in names if n in shapes}
    if "mean" in inputs:
        inputs["mean"] = inputs["x"].mean(-1, keepdims=True)
    if "rstd" in inputs:
        inputs["rstd"] = 1 / inputs["x"].std(-1, keepdims=True)
    rounded = {name: round_to(array, FORM) for name, array in inputs.items()}
    return rounded, {n: PARAMETERS[n] for n in names if n in PARAMETERS}


def in_float32(graph: Graph, inputs: Mapping[str, Array], edits: Edits, output: str) -> Array:
    """Return an output in bf16 as NumPy's float32 computes it, with edits."""
    values: dict[int, Array] = {}
    for node in graph.needed(output):
        args = [values[arg.id] for arg in node.args] or [source_value(node, inputs)]
        if node.id in edits:
            edit = edits[node.id]
            args += [values[other.id] for other in getattr(edit, "others", ())]
            value = edit(*args)
        else:
            value = value_of(node, args) if node.args else args[0]
        values[node.id] = np.asarray(value, np.float32) if node.kind == "float" else value
    return round_to(values[graph.outputs[output].id], FORM)


def planted(graph: Graph, output: str, every: int) -> Iterator[Fault]:
    """Yield every nth fault of the table, with a size where it has to be chosen."""
    for fault in dishonest(graph, output)[::every]:
        yield fault.sized(SIZE) if fault.is_fitted else fault


def is_named(
    answer: OutputJudgment, graph: Graph, inputs: Mapping[str, Array], fault: Fault, output: str
) -> bool:
    """Return whether the fault that is named has the planted one's effect."""
    diagnosis = answer.diagnosis
    if diagnosis is None or diagnosis.fault is None or diagnosis.second is not None:
        return False
    if diagnosis.fault.id == fault.id:
        return True
    first, second = (
        Evaluation(of, inputs, edits=one.of_operations).run(output).output(output)
        for of, one in ((graph, fault), (diagnosis.graph, diagnosis.fault))
    )
    near = ALIKE * float(np.sqrt(np.square(first).mean()))
    return bool(np.allclose(first, second, rtol=ALIKE, atol=near, equal_nan=True))


def measured(kernel: Kernel, every: int) -> tuple[Counter[str], list[str]]:
    """Return how many faults of a kernel were planted, flagged and named, and those missed."""
    inputs, parameters = drawn(kernel)
    graphs = [trace(way, inputs, **parameters) for way in (kernel.reference, *kernel.ways[:4])]
    count: Counter[str] = Counter()
    missed: list[str] = []
    for output in graphs[0].outputs:
        right = in_float32(graphs[0], inputs, {}, output)
        for fault in planted(graphs[0], output, every):
            wrong = in_float32(graphs[0], inputs, fault.of_operations, output)
            if not (wrong != right).mean() >= LEAST_CHANGED:
                continue
            count["planted"] += 1
            answers = judge(graphs, inputs, {output: wrong}, {output: FORM}, [FORM]).outputs
            if answers[output].explanation not in FLAGGED:
                missed.append(f"{output}: {fault.id}: {answers[output].explanation.value}")
                continue
            count["flagged"] += 1
            if is_named(answers[output], graphs[0], inputs, fault, output):
                count["named"] += 1
            else:
                missed.append(f"{output}: {fault.id}: named {answers[output].fault or 'nothing'}")
    return count, missed


def main(arguments: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, help="every nth fault (default: all)")
    parser.add_argument("--missed", action="store_true", help="list what isn't flagged or named")
    chosen = parser.parse_args(arguments)
    console = Console(width=120, highlight=False, markup=False)
    table = Table("kernel", "planted", "flagged", "named", "s")
    total: Counter[str] = Counter()
    listed: list[str] = []
    with np.errstate(all="ignore"):
        for name in KERNELS:
            began = time.perf_counter()
            count, missed = measured(kernel_of(name), chosen.every)
            seconds = f"{time.perf_counter() - began:.0f}"
            table.add_row(
                name, *(str(count[of]) for of in ("planted", "flagged", "named")), seconds
            )
            total += count
            listed += [f"{name}: {line}" for line in missed]
    console.print(table)
    shares = [
        f"{of} {100 * total[of] / max(total['planted'], 1):.1f} %" for of in ("flagged", "named")
    ]
    console.print(f"{total['planted']:,} faults: {', '.join(shares)} (asked: 99 and 95 %)")
    if chosen.missed:
        console.print("\n".join(listed))
    return 0


if __name__ == "__main__":
    sys.exit(main())

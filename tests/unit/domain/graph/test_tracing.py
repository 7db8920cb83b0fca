from __future__ import annotations

import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from gonogo.graph import Graph, Spec, TraceError, erf, quantize, trace
from traced_kernels import layernorm, layernorm_backward, normal, softmax

X = {"x": Spec((4, 6))}
LAYERNORM = {"x": Spec((4, 6)), "gamma": Spec((6,)), "beta": Spec((6,))}


def names(graph: Graph) -> list[str]:
    return [node.name for node in graph.nodes if node.name]


def test_local_variables_name_operations_and_floats_are_nodes():
    graph = trace(layernorm, LAYERNORM, epsilon=1e-3)
    assert names(graph) == [
        *("x", "gamma", "beta", "epsilon", "mean", "centered", "variance", "rstd", "xhat", "y")
    ]
    assert graph.parameters["epsilon"].attributes == {"value": 1e-3}
    variance = next(node for node in graph.nodes if node.name == "variance")
    assert variance.args[0].label == "(centered * centered)"
    assert [node.label for node in graph.users(variance)] == ["(variance + epsilon)"]
    assert graph.needed("mean")[-1] is graph.outputs["mean"]
    defaults = trace(layernorm, LAYERNORM)
    assert defaults.parameters["epsilon"].attributes == {"value": 1e-5}
    assert defaults.digest != graph.digest


def shifted(z, by):
    moved = z + by
    return moved


def helped(x, scale, count):
    for _ in range(count):
        x = shifted(x * scale, by=1)
    total = shifted(x, 2)
    return {"y": total, "x": x.sum(axis=1), "same": total}


def test_names_of_loops_and_helpers_are_unique():
    graph = trace(helped, X, scale=2.0, count=2)
    assert names(graph) == ["x", "scale", "z", "moved", "z[2]", "moved[2]", "moved[3]", "x[2]"]
    assert graph.outputs["y"] is graph.outputs["same"]
    summed = graph.outputs["x"]
    assert (summed.operation, summed.args[0].name, summed.label) == ("reshape", "x[2]", "x[2]")


def test_a_mean_has_its_name_whatever_shape_it_is_given():
    def centered(x):
        mean = np.mean(x, axis=1)[:, None]
        return {"y": x - mean}

    mean = next(node for node in trace(centered, X).nodes if node.name == "mean")
    assert mean.operation == "mean"


def test_what_the_last_lines_of_functions_hold_is_named():
    def last(x):
        def inner():
            deep = x * 2
            return [deep]

        return {"key": inner()[0], "other": x + 1}

    assert names(trace(last, X)) == ["x", "deep", "other"]


def test_a_trace_needs_no_profiler_and_works_in_threads():
    events: list[str] = []

    def profile(frame, event, _):
        events.append(event)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        trace(helped, X, scale=2.0, count=2)
        assert sys.getprofile() is profile
    finally:
        sys.setprofile(before)
    with ThreadPoolExecutor(4) as pool:
        graphs = list(pool.map(lambda _: trace(helped, X, scale=2.0, count=2), range(4)))
    assert events
    assert len({graph.digest for graph in graphs}) == 1


def test_equal_functions_have_equal_digests_in_other_processes_and_any_change_another():
    code = (
        "from gonogo.graph import Spec, trace; from traced_kernels import layernorm as f;"
        "print(trace(f, {'x': Spec((4, 6)), 'gamma': Spec((6,)), 'beta': Spec((6,))}).digest)"
    )
    path = "import sys; sys.path[:] = " + repr(sys.path) + ";"
    command = [sys.executable, "-c", path + code]
    other = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    graph = trace(layernorm, LAYERNORM)
    assert other == graph.digest
    wide = trace(layernorm, LAYERNORM | {"x": Spec((4, 6), "int")})
    renamed = Graph.from_json(graph.to_json().replace('"xhat"', '"normalized"'))
    assert len({graph.digest, wide.digest, renamed.digest}) == 3


def test_constants_keep_their_bits():
    table = np.array([[0.1, -np.inf], [np.nan, 1e-310]])
    graph = trace(lambda x: {"y": x[:2, :2] + table + math.pi + np.inf}, X)
    values = [
        node for node in Graph.from_json(graph.to_json()).nodes if node.operation == "constant"
    ]
    assert [node.label for node in values] == [f"constant {values[0].key}", "3.14159", "inf"]
    assert values[1].attributes == {"value": math.pi}


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"nodes":[]}',
        '{"nodes":[{"operation":"cos"}],"outputs":{}}',
        '{"nodes":[{"operation":"frob","args":[]}],"outputs":{}}',
        '{"nodes":[{"operation":"cos","args":[0]}],"outputs":{}}',
    ],
)
def test_what_is_no_graph_is_refused(text):
    with pytest.raises(ValueError, match=r"graph|Expecting"):
        Graph.from_json(text)


def changed(x):
    x += 1
    return {"y": x}


def assigned(x):
    x[0] = 1
    return {"y": x}


def filled(x):
    buffer = np.zeros((4, 6))
    buffer[1] = x[1]
    return {"y": x}


def added(x):
    total = np.zeros((4, 6))
    total += x
    return {"y": total}


REFUSED = [
    (changed, "change in place.*write x = x \\+ y"),
    (assigned, "x\\[i\\] = v can't be traced; use np.where"),
    (filled, "conversion to an array.*np.stack"),
    (added, "change in place"),
    (lambda x: np.add(x, 1, out=np.zeros((4, 6))), "with out="),
    (lambda x: np.sum(x, out=np.zeros(())), "with out="),
    (lambda x: np.sum(x, where=x > 0), "with where=; use np.where"),
    (lambda x: np.add(x, 1, where=x > 0), "with where="),
    (lambda x: x.mean(dtype=np.float32), "with dtype=; leave it out"),
    (lambda x: np.sum(x, 0, np.float32), "np.sum: "),
    (lambda x: np.max(x, initial=0), "with initial="),
    (lambda x: np.add.reduce(x), "np.add.reduce can't be traced; use np.sum"),
    (lambda x: np.asarray(x), "conversion to an array"),
    (lambda x: np.array([x, x]), "use np.stack"),
    (lambda x: float(x[0, 0]), "use NumPy's functions"),
    (lambda x: int(x[0, 0]), "use NumPy's functions"),
    (lambda x: math.sqrt(x[0, 0]), "such as np.sqrt"),
    (lambda x: list(range(x[0, 0])), "range"),
    (lambda x: x if x[0, 0] > 0 else -x, "decision on a value.*np.where"),
    (lambda x: max(x[0], x[1]), "decision on a value"),
    (lambda x: list(x), "iteration over a value"),
    (lambda x: 1.0 in x, "`in` can't be traced"),
    (lambda x: x.sort(), "x.sort can't be traced"),
    (lambda x: x.summ(), "did you mean .*sum"),
    (lambda x: np.nansum(x), "np.nansum can't be traced; did you mean sum"),
    (lambda x: np.cov(x), "np.cov can't be traced; write it with sums"),
    (lambda x: x + np.ones(5), "np.add: .*shape"),
    (lambda x: x @ np.ones((5, 2)), "don't fit in a matrix product"),
    (lambda x: np.einsum("ij,jk->ik", x, np.ones((5, 2))), "axis 'j' of einsum has 6 and 5"),
    (lambda x: np.einsum("ii->i", x), "repeats an axis"),
    (lambda x: np.einsum("ij,j->i", x), "is for 2 operands, not 1"),
    (lambda x: x.reshape(5, 5), "np.reshape: .*reshape"),
    (lambda x: x.sum(axis=2), "axis 2 is out of bounds"),
    (lambda x: x[7], "outside the axis of 4 elements"),
    (lambda x: x[0, 0, 0], "3 indices for 2 axes"),
    (lambda x: x[x > 0], "for masks use np.where"),
    (lambda x: x[x], "an index has to be int"),
    (lambda x: x.astype(np.float16), "use gonogo.graph.quantize"),
    (lambda x: x + "a", "np.add: "),
    (lambda x: x & 1, "bits of ints"),
    (lambda x: np.pad(x, 1, mode="edge"), "only constants can be padded"),
    (lambda x: np.split(x, 5), "can't be split into 5"),
    (lambda x: np.where(x > 0), "np.where: .*missing"),
]


@pytest.mark.parametrize(("body", "message"), REFUSED)
def test_what_cant_be_traced_is_refused_with_its_line(body, message):
    line = body.__code__.co_firstlineno
    with pytest.raises(TraceError, match=rf"(?s)test_tracing\.py:\d+: .*{message}") as problem:
        trace(body, X)
    assert 0 <= int(str(problem.value).split(":")[1]) - line <= 3


@pytest.mark.parametrize(
    ("function", "inputs", "message"),
    [
        (lambda x: x, X, "returns Symbol instead of a dict"),
        (lambda x: {}, X, "dict of outputs"),
        (lambda x: {"y": 1.0}, X, "output 'y' is float: it has to be computed from the inputs"),
        (lambda z: {"y": z}, X, "missing a required argument: 'z'"),
        (lambda x: {"y": x}, {"x": np.array(["a"])}, "input x: <U1 is no type"),
    ],
)
def test_what_isnt_a_kernel_is_refused(function, inputs, message):
    with pytest.raises(TraceError, match=message):
        trace(function, inputs)


def test_values_of_another_trace_are_refused():
    values = []
    trace(lambda x: values.append(x) or {"y": x * 2}, X)
    with pytest.raises(TraceError, match="another trace"):
        trace(lambda x: {"y": x + values[0]}, X)


def test_other_spellings_are_written_with_the_tables_operations():
    def spelled(x):
        square, root, inverse = x**2, x**0.5, x**-1
        deviation = x.std(1)
        first, second = np.split(x, 2, axis=1)
        wide = np.moveaxis(x, 0, 1).ravel()
        limited = np.clip(x, 0, None)
        rounded = quantize(x, "bf16")
        error = erf(x)
        return dict(locals())

    graph = trace(spelled, X)
    nodes = {name: graph.outputs[name] for name in graph.outputs}
    operations = {name: node.operation for name, node in nodes.items()}
    assert " ".join(operations.values()) == (
        "input multiply sqrt divide reshape slice slice reshape maximum quantize erf"
    )
    root = nodes["deviation"].args[0]
    assert (root.name, root.label, root.args[0].operation) == ("deviation", "deviation", "var")


def test_integers_masks_and_options_stay_what_they_are():
    def mixed(x, counts, mask, *, negate: bool, mode: str, epsilon: float):
        assert (negate, mode) == (True, "sum")
        y = np.where(mask & ~(counts > 1), x, -x) if negate else x
        whole = counts // 2
        others = {"ratio": counts / 2, "any": mask.any(axis=0), "n": x.shape[0] * y}
        return {"y": y, "whole": whole, **others}

    specs = {"x": Spec((2, 3)), "counts": np.zeros((2, 3), np.int32), "mask": np.ones((2, 3), bool)}
    graph = trace(mixed, specs, negate=True, mode="sum", epsilon=0.0)
    kinds = {name: node.kind for name, node in graph.outputs.items()}
    assert kinds == {"y": "float", "whole": "int", "ratio": "float", "any": "bool", "n": "float"}
    assert list(graph.parameters) == ["epsilon"]


def test_large_shapes_are_traced_without_memory():
    shapes = {"x": (10**6, 8462), "gamma": (8462,), "mean": (10**6, 1), "rstd": (10**6, 1)}
    specs = {name: Spec(shape) for name, shape in (shapes | {"dy": (10**6, 8462)}).items()}
    assert trace(layernorm_backward, specs).outputs["dgamma"].shape == (8462,)
    large = {"x": Spec((10**6, 10**6)), "at": Spec((100,), "int")}
    rows = trace(lambda x, at: {"y": np.concatenate([x[at], x[:9]])[:, ::-1]}, large)
    assert rows.outputs["y"].shape == (109, 10**6)


def test_a_kernel_runs_once_and_leaves_numpy_as_it_was():
    calls = []
    trace(lambda x: calls.append(1) or softmax(x), {"x": normal(2, 3)})
    assert calls == [1]

"""Faults of wrong kernels are named, their places are said, and what can't be seen is listed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo.arithmetic import Program, Replay, exact
from gonogo.arithmetic.formats import round_to
from gonogo.faults.table import faults
from gonogo.graph import Graph, Mistake, trace
from gonogo.judgment.diagnosis import Diagnosis, diagnose
from gonogo.judgment.limits import detection_limits
from gonogo.judgment.sample import Sample, cut_of, some_groups
from gonogo.kernels.layernorm import layernorm, layernorm_backward
from gonogo.kernels.rmsnorm import rmsnorm
from gonogo.kernels.softmax import softmax

Array = NDArray[Any]
ROWS, COLUMNS = 40, 200


def inputs_of(rows: int = ROWS, columns: int = COLUMNS) -> dict[str, Array]:
    r = np.random.default_rng(7)
    x, dy = r.normal(0.3, 1.2, (rows, columns)), r.normal(size=(rows, columns))
    given = {
        "x": x,
        "gamma": r.normal(size=columns),
        "beta": r.normal(size=columns),
        "mean": x.mean(axis=-1, keepdims=True),
        "rstd": 1 / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5),
        "dy": dy,
    }
    return {name: round_to(array, "fp32") for name, array in given.items()}


INPUTS = inputs_of()
KERNELS: dict[str, tuple[Callable[..., Any], dict[str, float], tuple[str, ...]]] = {
    "forward": (layernorm, {"epsilon": 1e-5}, ("x", "gamma", "beta")),
    "backward": (layernorm_backward, {}, ("x", "gamma", "mean", "rstd", "dy")),
    "rmsnorm": (rmsnorm, {"epsilon": 1e-5}, ("x", "gamma")),
    "softmax": (softmax, {}, ("x",)),
}


def kernel(name: str) -> tuple[Graph, dict[str, Array]]:
    function, parameters, names = KERNELS[name]
    inputs = {name_: INPUTS[name_] for name_ in names}
    return trace(function, inputs, **parameters), inputs


def wrong_output(graph: Graph, inputs: dict[str, Array], output: str, ids: list[str]) -> Array:
    """Return an output with faults and with noise of the size that the replay says."""
    table = {fault.id: fault for fault in faults(graph, output)}
    chosen = [table[id].sized(0.01) if table[id].is_fitted else table[id] for id in ids]
    edits = {at: edit for fault in chosen for at, edit in fault.edits.items()}
    values = exact(graph, inputs, edits, outputs=[output])[graph.outputs[output].id]
    noise = np.sqrt(Replay(graph, inputs).run(output).variance)
    return values + noise * np.random.default_rng(1).normal(size=values.shape)


def diagnosed(
    graph: Graph, inputs: dict[str, Array], output: str, values: Array, form: str = "fp32"
) -> Diagnosis:
    quantity = Replay(graph, inputs).run(output)
    return diagnose(graph, inputs, output, round_to(values, form), form, quantity)


@pytest.mark.parametrize(
    ("name", "output", "ids", "form"),
    [
        ("forward", "y", ["unbiased:variance"], "fp32"),
        ("forward", "y", ["padded:variance"], "bf16"),
        ("forward", "y", ["without-tile-3:mean"], "fp32"),
        ("forward", "y", ["unmasked:mean"], "fp32"),
        ("forward", "y", ["factor:rstd"], "bf16"),
        ("forward", "y", ["is-0.01:epsilon"], "fp32"),
        ("forward", "y", ["outside:epsilon@shifted"], "fp32"),
        ("forward", "y", ["shifted+32:gamma"], "fp16"),
        ("forward", "y", ["stored-tf32:centered@square"], "fp32"),
        ("forward", "y", ["wrapped:mean"], "fp32"),
        ("forward", "y", ["carried:mean"], "fp32"),
        ("backward", "dx", ["twice:s1@P_centered"], "bf16"),
        ("backward", "dx", ["missing:s1@P_centered"], "fp32"),
        ("backward", "dx", ["only-last-two:s1"], "fp32"),
        ("backward", "dx", ["twice:s1@P_centered", "only-tile-6:s2"], "bf16"),
        ("backward", "dx", ["factor:rstd@dx"], "fp32"),
        ("backward", "dgamma", ["without-tile-1:dgamma"], "fp32"),
        ("backward", "dgamma", ["before:rstd"], "fp32"),
        ("backward", "dgamma", ["stored-bf16:mean", "stored-bf16:rstd"], "fp32"),
        ("rmsnorm", "y", ["plus-one:gamma@y"], "bf16"),
        ("softmax", "y", ["without-last:total"], "fp32"),
        ("softmax", "y", ["padding-256:total"], "bf16"),
        ("forward", "y", ["padding-224:variance"], "fp32"),
        ("forward", "y", ["bypass-x:centered@square"], "fp32"),
        ("forward", "y", ["bypass-x:centered@xhat"], "bf16"),
    ],
)
def test_a_wrong_kernels_fault_is_named(name: str, output: str, ids: list[str], form: str) -> None:
    graph, inputs = kernel(name)
    ids = [
        id.replace(":dgamma", f":{_sum_of(graph).key}") if output == "dgamma" else id for id in ids
    ]
    diagnosis = diagnosed(graph, inputs, output, wrong_output(graph, inputs, output, ids), form)
    assert diagnosis.fault is not None, diagnosis.message
    named = [diagnosis.fault, *([diagnosis.second] if diagnosis.second else [])]
    table = {fault.id: fault for fault in faults(graph, output)}
    sample = Sample(graph, inputs, output)
    assert len(named) == len(ids)
    for id in ids:  # faults of the same effect can't be told apart
        fault = table[id].sized(0.01) if table[id].is_fitted else table[id]
        effect = sample.effect(fault)
        sizes = [np.abs(sample.effect(name_) - effect).max() for name_ in named]
        assert min(sizes) <= 0.02 * np.abs(effect).max(), diagnosis.message


def _sum_of(graph: Graph) -> Any:
    node = graph.outputs["dgamma"]
    while node.operation != "sum":
        node = node.args[0]
    return node


@pytest.mark.parametrize("name", KERNELS)
def test_a_fault_has_the_same_effect_on_a_sample_as_on_the_whole(name: str) -> None:
    graph, inputs = kernel(name)
    for output in graph.outputs:
        cut = cut_of(graph, output)
        assert cut is not None
        groups = np.array([0, 3, 4, cut.groups - 1])
        whole, part = Sample(graph, inputs, output), Sample(graph, inputs, output, cut, groups)
        table = list(faults(graph, output))
        assert len({fault.id for fault in table}) == len(table)
        for fault in table:
            # int8's scale and the sum over the columns of a sample are those of the sample
            if "int8" not in fault.id:
                expected = cut.part_of(whole.effect(fault), cut.outputs[output], groups)
                got = part.effect(fault)
                np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-9, err_msg=fault.id)


def test_a_sample_stores_a_value_without_a_name_as_the_whole_does() -> None:
    x = np.random.default_rng(0).normal(size=(40, 8))
    # the nodes of z are not in the sample, whose own ones keep their numbers
    graph = trace(lambda x: {"z": np.exp(x) * 3.0, "y": np.sin(x) + x}, {"x": x})
    sine = next(node for node in graph.needed("y") if node.operation == "sin")
    program = Program(stored={sine.key: "bf16"})
    sample = Sample(graph, {"x": x}, "y", *some_groups(graph, "y", 8 * 16), program)
    whole = Sample(graph, {"x": x}, "y", program=program)
    assert (sample.right == sample.part_of(whole.right)).all()
    assert (sample.right != sample.part_of(np.sin(x) + x)).any()


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (np.arange(COLUMNS) // 8 % 5 != 4, "32 to 39 of every 40 columns"),
        ((np.arange(COLUMNS) < 64) | (np.arange(COLUMNS) >= 128), "tiles 2 to 3 of 7"),
        (1 + (np.arange(COLUMNS) // 32 == 5), "counts tile 5 of 7 (counted from 0) twice"),
        (np.arange(COLUMNS) < COLUMNS - 3, "leaves out the last 3 columns"),
    ],
)
def test_the_tiles_of_a_wrong_sum_are_named(weights: Array, words: str) -> None:
    graph, inputs = kernel("rmsnorm")
    mean_square = np.mean(np.square(inputs["x"]) * weights, axis=-1, keepdims=True)
    y = inputs["x"] / np.sqrt(mean_square + 1e-5) * inputs["gamma"]
    diagnosis = diagnosed(graph, inputs, "y", y)
    assert "mean_square" in diagnosis.message
    assert words in diagnosis.message


def _unwritten(y: Array) -> None:
    y[3, 32:64] = 0


def _even_tiles(y: Array) -> None:
    y[:, np.arange(COLUMNS) % 64 >= 32] = 0


def _block(y: Array) -> None:
    y[32:, 64:96] = np.nan


def _rows(y: Array) -> None:
    y[36:] = y[:4].copy()


def _isolated(y: Array) -> None:
    y[[1, 7, 30], [5, 90, 150]] *= 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_unwritten, "32 of 8,000 values are off, in row 3, columns 32 to 63 (counted from 0); "),
        (_even_tiles, "columns, 32 to 63 of every 64 (counted from 0); they are 0"),
        (_block, "in rows 32 to 39, columns 64 to 95 (counted from 0); they are NaN"),
        (_rows, "in rows 36 to 39, all 200 columns (counted from 0); they are the values of rows"),
        (_isolated, "they are twice as large as they should be"),
    ],
)
def test_places_are_said_where_no_term_is_wrong(
    change: Callable[[Array], None], words: str
) -> None:
    graph, inputs = kernel("forward")
    y = exact(graph, inputs, outputs=["y"])[graph.outputs["y"].id].copy()
    change(y)
    diagnosis = diagnosed(graph, inputs, "y", y)
    assert diagnosis.fault is None
    assert words in diagnosis.message


def test_a_fault_in_a_region_is_named_with_its_place() -> None:
    graph, inputs = kernel("forward")
    y = exact(graph, inputs, outputs=["y"])[graph.outputs["y"].id].copy()
    y[:, 64:96] -= 2 * inputs["beta"][64:96]
    diagnosis = diagnosed(graph, inputs, "y", y)
    assert "beta is subtracted in y, in all 40 rows, columns 64 to 95" in diagnosis.message


def test_limits_list_what_rounding_hides_and_nothing_that_shows() -> None:
    graph, inputs = kernel("forward")
    single, narrow = (detection_limits(graph, inputs, "y", form) for form in ("fp32", "bf16"))
    assert not {"unbiased:variance", "missing:beta@y", "stored-bf16:rstd"} & {*single.unseen}
    assert "stored-bf16:y" in narrow.unseen
    assert len(narrow.unseen) >= len(single.unseen)
    assert 2.0**-22 <= single.factors["factor:rstd"] <= 2.0**-17
    assert single.factors["factor:rstd"] <= narrow.factors["factor:rstd"] < 0.01


@pytest.mark.parametrize("rows", [ROWS, 2000])
def test_a_wrong_function_of_a_kernels_own_is_named(rows: int) -> None:
    def shared_total(x: Any) -> Any:
        e = np.exp(x - np.max(x, axis=-1, keepdims=True))
        return {"y": e / np.sum(e), "other": e}

    def base_two(x: Any) -> Any:
        e = 2.0 ** (x - np.max(x, axis=-1, keepdims=True))
        return {"y": e / np.sum(e, axis=-1, keepdims=True)}

    inputs = {"x": inputs_of(rows)["x"]}
    mistakes = tuple(
        Mistake(id, id, trace(function, inputs))
        for id, function in {"shared": shared_total, "base-2": base_two}.items()
    )
    graph = replace(trace(softmax, inputs), mistakes=mistakes)
    wrong = exact(mistakes[1].graph, inputs)[mistakes[1].graph.outputs["y"].id]
    diagnosis = diagnosed(graph, inputs, "y", wrong, "bf16")
    assert diagnosis.fault is not None, diagnosis.message
    assert diagnosis.fault.id == "base-2"

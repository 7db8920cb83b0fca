"""The judge, asked about a run: `judge` is the one function that another judge replaces."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import numpy as np

from benchmarks.corpus.answers import NOT_A_TERM, Answer, Verdict, leading_term
from benchmarks.corpus.run import Arrays, Label, Question
from gonogo import workloads
from gonogo.arithmetic import Program, exact
from gonogo.arithmetic.formats import round_to
from gonogo.graph import Graph, trace
from gonogo.judgment.judging import judge as judged
from gonogo.judgment.limits import Limits
from gonogo.judgment.tolerance import Tolerance
from gonogo.judgment.verdict import Judgment
from gonogo.kernels.registry import kernel_of
from gonogo.kernels.ttnn import DATAFLOWS
from gonogo.spec.test_spec import TestSpec

VERDICTS = {
    ("explained", True): "pass",
    ("explained", False): "fail_by_tolerance",
    ("unexplained", True): "pass_by_tolerance",
    ("unexplained", False): "fail",
    ("suspect", True): "suspect",
    ("suspect", False): "fail",
}
"""(explanation, within the tolerance) -> verdict; the others are inconclusive."""
TENSORS = ("x", "dy", "y", "dx")
"""Values whose rows are what is wrong, if another row's stand there."""
VALUES = {
    "y": "scale",
    "dx": "scale",
    "shifted": "variance",
    "square": "variance",
    "mean_square": "variance",
    "root": "rstd",
    "share": "s2",
    "mean_P_x": "s2",
    "shift": "mean",
}
"""Values that a term's name doesn't say."""


def ask(question: Question, outputs: Arrays) -> Judgment:
    """Return the judge's own answer."""
    if question.arithmetic is not None:
        test = _test(question)
        inputs, narrow = workloads.shaped(test, question.inputs), ()
        graph, program = _declared(test, question.arithmetic)
        graphs, programs, given = [graph], [program], _shaped(graph, outputs)
        forms = dict.fromkeys(given, str(test.numerics.output))
    else:
        form, programs = str(question.numerics.get("output", "fp32")), []
        graphs, inputs = _graphs_and_inputs(question)
        formats = dict.fromkeys((form, question.numerics.get("input", form)))
        narrow = tuple(name for name in formats if name != "fp32")
        given = _shaped(graphs[0], outputs)
        forms = {name: form if _fits(values, form) else "fp32" for name, values in given.items()}
    tolerances = dict.fromkeys(given, _tolerance(question))
    return judged(graphs, inputs, given, forms, narrow, programs, tolerances=tolerances)


def _declared(test: TestSpec, arithmetic: str) -> tuple[Graph, Program]:
    """Return the graph and the program of a Wormhole's run: an operation of ttnn, or a name."""
    if arithmetic in DATAFLOWS.get(test.kernel, {}):
        return workloads.on_wormhole(test, DATAFLOWS[test.kernel][arithmetic])
    return workloads.declared(test, arithmetic)[0]


def _test(question: Question) -> TestSpec:
    """Return the test of a run on a Wormhole."""
    fields = {
        "kernel": question.kernel,
        "shape": list(question.inputs["x"].shape),
        "epsilon": question.epsilon,
        "numerics": dict(question.numerics),
        "parameters": dict(question.parameters),
    }
    return TestSpec.parse(fields)


def judge(question: Question, outputs: Arrays, label: Label) -> Verdict:
    """Judge the outputs of a run; the limits are those of a small fault that rounding explains."""
    judgment = ask(question, outputs)
    reference, tolerance = judgment.graphs[0], _tolerance(question)
    given, right = _shaped(reference, outputs), exact(reference, judgment.inputs)
    is_green = not any(
        tolerance.failing(values, right[reference.outputs[name].id]).any()
        for name, values in given.items()
    )
    explanation = judgment.explanation.value
    answers = {}
    for name, answer in judgment.outputs.items():
        limits: tuple[str, ...] = ()
        if label.size == "small" and answer.explanation in ("explained", "inconclusive"):
            limits = _limits(judgment.detection_limits(name))
        answers[name] = Answer(
            answer.explanation.value, answer.arithmetic, _term(judgment, [name]), limits
        )
    names = [name for name in label.outputs if name in given] or list(given)
    verdict = VERDICTS.get((explanation, is_green), "inconclusive")
    return Verdict(verdict, explanation, is_green, _term(judgment, names), answers)


def _shaped(reference: Graph, outputs: Arrays) -> dict[str, Any]:
    return {
        name: np.asarray(values, np.float64).reshape(reference.outputs[name].shape)
        for name, values in outputs.items()
        if name in reference.outputs
    }


def _fits(values: Any, form: str) -> bool:
    if form == "fp32":
        return True
    finite = values[np.isfinite(values)]
    return bool((round_to(finite, form) == finite).all())


def _tolerance(question: Question) -> Tolerance:
    """Return a question's tolerance; what it doesn't say is as in np.allclose."""
    limits = {"rtol": 1e-5, "atol": 1e-8} | dict(question.tolerance)
    return Tolerance(limits["rtol"], limits["atol"])


def _term(judgment: Judgment, names: list[str]) -> str | None:
    """Return the term that the diagnosis of the first of some outputs names."""
    for name in names:
        answer = judgment.outputs[name]
        if answer.explanation not in ("unexplained", "suspect") or answer.diagnosis is None:
            continue
        fault = answer.diagnosis.fault
        if fault is not None:
            return _term_of(fault.id, fault.label)
        by_no_factor = re.match(r"(\S+) is wrong by no one factor", answer.diagnosis.message)
        if by_no_factor:
            return VALUES.get(by_no_factor[1]) or leading_term(by_no_factor[1])
    return None


def _term_of(fault: str, label: str) -> str | None:
    """Return the corpus' name for the value that a fault makes wrong."""
    kind, _, place = fault.partition(":")
    value, _, user = place.partition("@")
    value = value.partition("[")[0]
    if kind.startswith("bypass-") and value == "centered":
        return "variance" if user == "square" else "mean"
    if kind.startswith("stored-"):
        return NOT_A_TERM
    if value in TENSORS and re.match("before|after|first|wrapped|unwritten|carried", kind):
        return "row"
    return VALUES.get(value) or leading_term(label)


def _limits(limits: Limits) -> tuple[str, ...]:
    """Return the terms that could be wrong unseen, and the largest common factor.

    They are written as is_listed reads them.
    """
    terms = dict.fromkeys(_term_of(id, label) or label for id, label in limits.unseen.items())
    largest = max((size for size in limits.factors.values() if np.isfinite(size)), default=0.0)
    return (*terms, f"a common factor below {100 * largest:.6f} %")


def _graphs_and_inputs(question: Question) -> tuple[list[Graph], dict[str, Any]]:
    """Return the graphs of a question's kernel on its shapes, and its inputs as float64."""
    kernel, parameters = question.kernel, dict(question.parameters)
    if kernel.endswith("_bw") and not {"mean", "rstd"} & question.inputs.keys():
        kernel += "_own"
    if not kernel.endswith("_bw"):
        parameters["epsilon"] = question.epsilon
    inputs = {name: np.asarray(values, np.float64) for name, values in question.inputs.items()}
    if kernel in ("layernorm_bw", "rmsnorm_bw"):
        inputs |= {n: inputs[n].reshape(-1, 1) for n in ("mean", "rstd") if n in inputs}
    shapes = tuple((name, values.shape) for name, values in inputs.items())
    return _graphs(kernel, shapes, tuple(sorted(parameters.items()))), inputs


@lru_cache(maxsize=64)
def _graphs(
    kernel: str, shapes: tuple[tuple[str, tuple[int, ...]], ...], parameters: tuple[Any, ...]
) -> list[Graph]:
    inputs = {name: np.zeros(shape) for name, shape in shapes}
    known = kernel_of(kernel)
    return [trace(way, inputs, **dict(parameters)) for way in (known.reference, *known.ways)]

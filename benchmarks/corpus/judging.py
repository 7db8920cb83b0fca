"""The judge, asked about runs in several processes: rows of the table of verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from multiprocessing import get_context
from typing import Any

import numpy as np

from benchmarks.corpus import store
from benchmarks.corpus.run import Arrays, Label, Question
from benchmarks.corpus.sources import all_sources
from benchmarks.corpus.store import Record, Row
from gonogo import workloads
from gonogo.arithmetic import Program, exact
from gonogo.arithmetic.formats import round_to
from gonogo.graph import Graph, trace
from gonogo.judgment.judging import judge
from gonogo.judgment.limits import Limits
from gonogo.judgment.tolerance import Tolerance
from gonogo.judgment.verdict import Judgment
from gonogo.kernels.registry import kernel_of
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
FACTOR = 1.01
"""A factor of the fault table is within a limit up to this many times its size."""
Batch = tuple[int, list[Record]]
"""A shard of the corpus, and some of its records."""


def rows_of(batches: Sequence[Batch]) -> Iterator[list[Row]]:
    """Yield the rows of each batch, in order, from a process for each processor."""
    if batches:
        with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
            yield from pool.map(judge_batch, batches)


def judge_batch(batch: Batch) -> list[Row]:
    """Return the rows of a few runs of a shard; a judge that raises is a verdict of its own."""
    shard, records = batch
    sources = all_sources()
    rows = []
    for record, outputs in zip(records, store.outputs(shard, records), strict=True):
        label = record.label
        row: Row = {
            "id": record.run.id,
            "digest": record.digest,
            "size": label.size,
            "group": label.group,
            "fault": label.fault,
        }
        try:
            question = sources[record.run.source].question(record.run)
            with np.errstate(all="ignore"):
                row |= row_of(question, outputs, label)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"[:200]
            row |= {"verdict": "error", "explanation": problem, "green": True}
            row |= {"listed": False, "outputs": {}}
        rows.append(row)
    return rows


def row_of(question: Question, outputs: Arrays, label: Label) -> Row:
    """Return the columns of a row that say what the judge says.

    "outputs": the explanation, the arithmetic and the named fault of each. "listed": whether the
    detection limits of a small fault that isn't flagged name it.
    """
    judgment = ask(question, outputs)
    reference, tolerance = judgment.graphs[0], _tolerance(question)
    given, right = _shaped(reference, outputs), exact(reference, judgment.inputs)
    is_green = not any(
        tolerance.failing(values, right[reference.outputs[name].id]).any()
        for name, values in given.items()
    )
    explanation = judgment.explanation.value
    is_listed = False
    answers = {}
    for name, answer in judgment.outputs.items():
        named = answer.diagnosis.fault if answer.diagnosis is not None else None
        answers[name] = [answer.explanation.value, answer.arithmetic, named and named.id]
        if label.size == "small" and answer.explanation in ("explained", "inconclusive"):
            is_listed |= _lists(judgment.detection_limits(name), label.fault)
    return {
        "verdict": VERDICTS.get((explanation, is_green), "inconclusive"),
        "explanation": explanation,
        "green": is_green,
        "listed": is_listed,
        "outputs": answers,
    }


def _lists(limits: Limits, fault: str) -> bool:
    """Return whether limits name a fault; one of a size is written as id=size."""
    name, _, size = fault.partition("=")
    if size:
        return abs(float(size)) < FACTOR * limits.factors.get(name, 0.0)
    return name in limits.unseen


def ask(question: Question, outputs: Arrays) -> Judgment:
    """Return the judge's own answer."""
    form = str(question.numerics.get("output", "bf16" if question.arithmetic else "fp32"))
    programs: list[Program] = []
    if question.arithmetic is not None:
        test = _test(question)
        inputs, narrow = workloads.shaped(test, question.inputs), ()
        graph, program = workloads.declared(test, question.arithmetic)[0]
        graphs, programs, given = [graph], [program], _shaped(graph, outputs)
        forms = dict.fromkeys(given, str(test.numerics.output))
    else:
        graphs, inputs = _graphs_and_inputs(question)
        formats = dict.fromkeys((form, question.numerics.get("input", form)))
        narrow = tuple(name for name in formats if name != "fp32")
        given = _shaped(graphs[0], outputs)
        forms = {name: form if _fits(values, form) else "fp32" for name, values in given.items()}
    tolerances = dict.fromkeys(given, _tolerance(question))
    return judge(graphs, inputs, given, forms, narrow, programs, tolerances=tolerances)


def _test(question: Question) -> TestSpec:
    """Return the test of a run on a Wormhole."""
    parameters = dict(question.parameters)
    epsilon = {"epsilon": parameters.pop("epsilon")} if "epsilon" in parameters else {}
    fields = {
        "kernel": question.kernel,
        "shape": list(question.inputs["x"].shape),
        **epsilon,
        "numerics": dict(question.numerics),
        "parameters": parameters,
    }
    return TestSpec.parse(fields)


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


def _graphs_and_inputs(question: Question) -> tuple[list[Graph], dict[str, Any]]:
    """Return the graphs of a question's kernel on its shapes, and its inputs."""
    inputs = {name: np.asarray(values) for name, values in question.inputs.items()}
    shapes = tuple((name, array.shape, array.dtype.str) for name, array in inputs.items())
    return _graphs(question.kernel, shapes, tuple(sorted(question.parameters.items()))), inputs


@lru_cache(maxsize=64)
def _graphs(
    kernel: str, shapes: tuple[tuple[str, tuple[int, ...], str], ...], parameters: tuple[Any, ...]
) -> list[Graph]:
    inputs = {name: np.zeros(shape, dtype) for name, shape, dtype in shapes}
    known = kernel_of(kernel)
    return [trace(way, inputs, **dict(parameters)) for way in (known.reference, *known.ways)]

"""The answers of this version of the judge about small kernels, right and wrong: each fault is
named, its places are entry, and each number stays.

Stored histories hold these numbers. Whoever changes one on purpose raises JUDGE in
gonogo/spec/verdicts.py, and writes answers.json anew:
`python -m tests.unit.domain.judgment.test_answers`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gonogo.arithmetic import Evaluation, Program, Replay
from gonogo.arithmetic.formats import format_and_mode, round_to
from gonogo.arithmetic.program import NOTHING_STORED
from gonogo.faults.table import faults
from gonogo.graph import Graph
from gonogo.judgment import judge
from gonogo.judgment.tolerance import Tolerance
from gonogo.spec.verdicts import JUDGE
from tests.unit.domain.judgment.kernels import COLUMNS, ROWS, Array, small_kernel, tensors

ANSWERS = Path(__file__).with_name("answers.json")


def rounded(number: str) -> float:
    return float(f"{float(number):.6g}")


def nothing(y: Array) -> None:
    """Change nothing."""


@dataclass(frozen=True)
class Case:
    """An output with faults of a size and stored values, then spoiled, with noise of its own."""

    kernel: str
    output: str = "y"
    faults: tuple[str, ...] = ()
    form: str = "fp32"
    spoil: Callable[[Array], None] = nothing
    size: float = 0.01
    tolerance: Tolerance | None = None
    """With one, its advice and the detection limits are asked for, too."""
    program: Program = NOTHING_STORED
    declared: tuple[Program, ...] = ()
    way: int = 0
    """The number of the graph that computes it."""

    def values(self, graph: Graph, inputs: dict[str, Array]) -> Array:
        table = {fault.id: fault for fault in faults(graph, self.output)}
        chosen = [table[id] for id in self.faults]
        chosen = [fault.sized(self.size) if fault.is_fitted else fault for fault in chosen]
        edits = {at: edit for fault in chosen for at, edit in fault.edits.items()}
        evaluation = Evaluation(graph, inputs, self.program, edits=edits).run(self.output)
        values = np.array(evaluation.output(self.output), np.float64)
        variance = Replay(graph, inputs, self.program).run(self.output).variance
        values += np.sqrt(variance) * np.random.default_rng(1).normal(size=values.shape)
        self.spoil(values)
        form, mode = format_and_mode(self.form)
        return np.asarray(round_to(values, form, mode))

    def answer(self) -> dict[str, Any]:
        """Return what the judge says, as plain JSON."""
        form, name = format_and_mode(self.form)[0], self.output
        graphs, inputs = small_kernel(self.kernel, form)
        given = graphs, inputs, {name: self.values(graphs[self.way], inputs)}, {name: form}
        tolerances = {} if self.tolerance is None else {name: self.tolerance}
        narrow = () if form == "fp32" else (form,)
        judgment = judge(*given, narrow, self.declared, tolerances=tolerances)
        one = judgment.outputs[name]
        numbers = {"misfit": one.misfit, "way": one.way, "outside": int(one.outside.sum())}
        entry = {"message": judgment.message, **one.entry(), **numbers}
        if self.tolerance is not None:
            limits, advice = judgment.detection_limits(name), judgment.advice(name)
            entry |= {"limits": limits.message, "factors": dict(limits.factors)}
            entry |= {"advice": None if advice is None else asdict(advice)}
        plain: dict[str, Any] = json.loads(json.dumps(entry), parse_float=rounded)
        return plain


def at(place: Any, value: float) -> Callable[[Array], None]:
    def spoil(y: Array) -> None:
        y[place] = value

    return spoil


def of_other_rows(y: Array) -> None:
    y[60:] = y[:4].copy()


def doubled(y: Array) -> None:
    y[[1, 7, 30], [5, 90, 150]] *= 2


def negated(y: Array) -> None:
    y[:, 17] *= -1


def nudged(y: Array) -> None:
    y[4, 9] *= 1 + 2.0**-17


def totals(order: str) -> Program:
    form = "fp16" if order == "4 lanes" else "bf16"
    return Program(stored={"dbeta.total": form}, totals=order)


def two_rows_nudged(y: Array) -> None:
    y[[3, 40]] *= 1 + 2.0**-7


def few_values_nudged(y: Array) -> None:
    y[[2, 19, 44], [7, 80, 150]] *= 1 + 2.0**-6


def tail_nudged(y: Array) -> None:
    y[:, 192:] *= 1 + 2.0**-6


def sums_by_other_factors(y: Array) -> None:
    y *= np.random.default_rng(6).uniform(0.9, 1.1, (ROWS, 1))


def nudged_less(y: Array) -> None:
    y[4, 9] *= 1 + 2.0**-19.5


def halved(y: Array) -> None:
    y[5:7] *= 0.5


def noisy(y: Array) -> None:
    y += 0.01 * np.random.default_rng(2).normal(size=y.shape)


def weighted(weights: Array) -> Callable[[Array], None]:
    """Return what makes y that of an RMSNorm whose sum counts each column so many times."""

    def spoil(y: Array) -> None:
        x, gamma = tensors()["x"], tensors()["gamma"]
        square = np.mean(np.square(x) * weights, axis=-1, keepdims=True)
        y[:] = x / np.sqrt(square + 1e-5) * gamma

    return spoil


def every_other_term(y: Array) -> None:
    """Make y a product of which each second block of eight terms is missing."""
    a, b = tensors()["a"], tensors()["b"]
    counted = np.arange(96) // 8 % 2 == 0
    y[:] = a[:, counted] @ b[counted]


def rows_left_out(dgamma: Array) -> None:
    """Make dgamma a sum without each fourth row."""
    x, mean, rstd, dy = (tensors()[name] for name in ("x", "mean", "rstd", "dy"))
    counted = np.arange(len(x)) % 4 != 3
    dgamma[:] = (dy * (x - mean) * rstd)[counted].sum(axis=0)


def scattered(y: Array) -> None:
    y[np.random.default_rng(3).random(y.shape) < 0.005] += 0.5


def in_blocks(y: Array) -> None:
    y[:32, :32] += 0.5
    y[32:64, 64:96] += np.random.default_rng(4).normal(size=(32, 32))


def columns_of_noise(y: Array) -> None:
    y[:, 3:160:7] += np.random.default_rng(5).normal(size=y[:, 3:160:7].shape)


def infinite_below(y: Array) -> None:
    y[y < -2] = -np.inf


def beta_subtracted(y: Array) -> None:
    y[:, 64:96] -= 2 * tensors()["beta"][64:96]


TIGHT = Tolerance(rtol=1e-9)
PLACES = np.arange(COLUMNS)
STORED = Program(stored={"rstd": "bf16"})
TWO_STORED = Program(stored={"rstd": "bf16", "mean": "bf16"})
MOST_STORED = Program(stored=dict.fromkeys(("xhat", "P", "s1", "s2"), "bf16"))
UNKNOWN, UNKNOWN_SUMS = Program(narrow="bf16"), Program(narrow="bf16", narrow_sums=True)
PADDED, BIASED, WIDE = ("padded:variance",), ("unbiased:variance",), Tolerance(atol=0.03)
CUT = Program(stored={"rstd": "bf16/zero"})
EVEN_TILES = (slice(None), PLACES % 64 >= 32)
CASES = {
    "right": Case("forward", tolerance=TIGHT),
    "right and sometimes red": Case("forward", tolerance=Tolerance(atol=2e-6)),
    "right and never red": Case("forward", tolerance=Tolerance(atol=1e-5)),
    "right in bf16": Case("forward", form="bf16", tolerance=TIGHT),
    "right in fp16": Case("forward", form="fp16", tolerance=Tolerance(0.001, 0.001)),
    "a right mean": Case("forward", "mean", tolerance=TIGHT),
    "a right dx": Case("backward", "dx", tolerance=TIGHT),
    "a right dgamma": Case("backward", "dgamma", tolerance=TIGHT),
    "a right dbeta in bf16": Case("backward", "dbeta", form="bf16", tolerance=TIGHT),
    "a right product": Case("matmul", tolerance=TIGHT),
    "a right cumulative sum": Case("cumsum", tolerance=TIGHT),
    "a right softmax": Case("softmax", form="bf16", tolerance=TIGHT),
    "N - 1": Case("forward", faults=("unbiased:variance",)),
    "padded": Case("forward", faults=("padded:variance",), form="bf16"),
    "a tile left out": Case("forward", faults=("without-tile-3:mean",)),
    "no mask": Case("forward", faults=("unmasked:mean",)),
    "rstd by a factor": Case("forward", faults=("factor:rstd",), form="bf16"),
    "another epsilon": Case("forward", faults=("is-0.01:epsilon",)),
    "epsilon outside": Case("forward", faults=("outside:epsilon@shifted",)),
    "gamma shifted": Case("forward", faults=("shifted+32:gamma",), form="fp16"),
    "TF32": Case("forward", faults=("stored-tf32:centered@square",)),
    "wrapped": Case("forward", faults=("wrapped:mean",)),
    "carried": Case("forward", faults=("carried:mean",)),
    "padding": Case("forward", faults=("padding-224:variance",)),
    "x squared": Case("forward", faults=("bypass-x:centered@square",)),
    "x for centered": Case("forward", faults=("bypass-x:centered@xhat",), form="bf16"),
    "s1 twice": Case("backward", "dx", ("twice:s1@P_centered",), "bf16"),
    "no s1": Case("backward", "dx", ("missing:s1@P_centered",)),
    "the last two of s1": Case("backward", "dx", ("only-last-two:s1",)),
    "two faults": Case("backward", "dx", ("twice:s1@P_centered", "only-tile-6:s2"), "bf16"),
    "dx by a factor": Case("backward", "dx", ("factor:rstd@dx",)),
    "dx by a small factor": Case("backward", "dx", ("factor:rstd@dx",), size=2e-6),
    "rstd of the row before": Case("backward", "dgamma", ("before:rstd",)),
    "both statistics stored": Case("backward", "dgamma", ("stored-bf16:mean", "stored-bf16:rstd")),
    "1 + gamma": Case("rmsnorm", faults=("plus-one:gamma@y",), form="bf16"),
    "the last left out": Case("softmax", faults=("without-last:total",)),
    "padding of a sum": Case("softmax", faults=("padding-256:total",), form="bf16"),
    "a product by a factor": Case("matmul", faults=("factor:y",), size=1e-5),
    "a row unwritten": Case("forward", spoil=at((3, slice(32, 64)), 0)),
    "even tiles unwritten": Case("forward", spoil=at(EVEN_TILES, 0)),
    "a block of NaN": Case("forward", spoil=at((slice(32, None), slice(64, 96)), np.nan)),
    "inf in a column": Case("forward", spoil=at((slice(None), 8), np.inf)),
    "a constant": Case("forward", spoil=at((slice(4, 9), slice(None)), 2.5)),
    "other rows": Case("forward", spoil=of_other_rows),
    "isolated": Case("forward", spoil=doubled),
    "a negated column": Case("forward", spoil=negated),
    "one value": Case("rmsnorm", spoil=nudged),
    "noise": Case("rmsnorm", spoil=noisy),
    "noise in bf16": Case("rmsnorm", spoil=noisy, form="bf16"),
    "columns of a period left out": Case("rmsnorm", spoil=weighted(PLACES // 8 % 5 != 4)),
    "tiles left out": Case("rmsnorm", spoil=weighted((PLACES < 64) | (PLACES >= 128))),
    "a tile twice": Case("rmsnorm", spoil=weighted(1 + (PLACES // 32 == 5))),
    "the last three left out": Case("rmsnorm", spoil=weighted(PLACES < COLUMNS - 3)),
    "a term of eight left out": Case("matmul", spoil=every_other_term),
    "rows left out": Case("backward", "dgamma", spoil=rows_left_out),
    "scattered": Case("forward", spoil=scattered),
    "two blocks": Case("forward", spoil=in_blocks),
    "columns of noise": Case("forward", spoil=columns_of_noise),
    "infinite values": Case("forward", spoil=infinite_below),
    "halved rows": Case("forward", spoil=halved),
    "a sum of one row": Case("sum", tolerance=TIGHT),
    "a wrong sum of one row": Case("sum", spoil=at(0, 1.0)),
    "a right attention": Case("attention", form="bf16", tolerance=TIGHT),
    "an unscaled attention": Case("attention", faults=("factor:scores",), form="fp16"),
    "a right group norm": Case("groupnorm", form="fp16", tolerance=TIGHT),
    "a group norm by a factor": Case("groupnorm", faults=("factor:rstd",), size=1e-4),
    "gamma of another group": Case("groupnorm", faults=("shifted+1:gamma",), form="bf16"),
    "a fault in a region": Case("forward", spoil=beta_subtracted),
    "rstd stored": Case("forward", form="bf16", program=STORED, tolerance=TIGHT),
    "rstd stored, hidden in fp32": Case("forward", program=STORED),
    "rstd stored, declared": Case("forward", form="bf16", program=STORED, declared=(STORED,)),
    "declared and not stored": Case("forward", form="bf16", declared=(STORED,)),
    "truncated twice": Case("forward", form="bf16/zero", program=CUT),
    "two rows of an unknown order": Case("forward", form="bf16", spoil=two_rows_nudged),
    "a tail": Case("forward", form="bf16", spoil=tail_nudged),
    "a tail beside stored values": Case("forward", form="bf16", program=STORED, spoil=tail_nudged),
    "few values beside stored ones": Case(
        "forward", form="bf16", program=TWO_STORED, spoil=few_values_nudged
    ),
    "a factor in an unknown order": Case(
        "forward", "y", ("factor:rstd",), "bf16", program=UNKNOWN, size=0.003
    ),
    "a small factor in an unknown order": Case(
        "forward", "y", ("factor:rstd",), "bf16", program=UNKNOWN, size=0.0004
    ),
    "sums by other factors": Case("rmsnorm", spoil=sums_by_other_factors),
    "far from 0": Case("offset", tolerance=TIGHT),
    "far from 0, in one pass": Case("offset", way=2, tolerance=TIGHT),
    "far from 0, N - 1 in one pass": Case("offset", faults=("unbiased:variance",)),
    "in one pass": Case("forward", way=2, form="fp16"),
    "N - 1 in an unknown order": Case(
        "forward", "y", BIASED, "bf16", tolerance=WIDE, program=UNKNOWN
    ),
    "suspect": Case("rmsnorm", spoil=nudged_less),
    "truncated": Case("forward", form="bf16/zero"),
    "most stored": Case("backward", "dx", form="bf16", program=MOST_STORED),
    "totals in bf16": Case("backward", "dbeta", form="bf16", program=totals("running")),
    "totals in two parts": Case("backward", "dbeta", form="bf16", program=totals("2 parts")),
    "totals in four lanes": Case("backward", "dbeta", form="fp16", program=totals("4 lanes")),
    "an unknown order": Case("forward", form="bf16", program=UNKNOWN, tolerance=TIGHT),
    "an unknown order of sums": Case("forward", form="bf16", program=UNKNOWN_SUMS),
    "padded, an unknown order": Case("forward", "y", PADDED, "bf16", program=UNKNOWN),
}


@cache
def known() -> dict[str, Any]:
    answers: dict[str, Any] = json.loads(ANSWERS.read_text())
    return answers


def approx(value: Any) -> Any:
    """Return an answer in which numbers may differ as much as those of two processors do."""
    if isinstance(value, dict):
        return {name: approx(part) for name, part in value.items()}
    if isinstance(value, list):
        return [approx(part) for part in value]
    is_number = isinstance(value, float)
    return pytest.approx(value, rel=1e-3, abs=1e-12, nan_ok=True) if is_number else value


SEARCHED = {name for name, case in CASES.items() if case.program.stored or case.program.narrow}
"""Cases that the judge tries many programs for, a second each: `make test` leaves them out."""


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in SEARCHED else n for n in CASES]
)
def test_an_answer_is_that_of_its_version(name: str) -> None:
    assert CASES[name].answer() == approx(known()["answers"][name])


def test_the_answers_are_of_this_version() -> None:
    assert known()["judge"] == JUDGE
    assert known()["answers"].keys() == CASES.keys()


if __name__ == "__main__":
    every = [f"{json.dumps(name)}: {json.dumps(case.answer())}" for name, case in CASES.items()]
    ANSWERS.write_text(f'{{"judge": "{JUDGE}", "answers": {{\n' + ",\n".join(every) + "\n}}\n")

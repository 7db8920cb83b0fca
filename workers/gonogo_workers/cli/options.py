"""Shared by `check` and `judge`: flags into a test, seeds into a report and an exit code."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Table
from rich.text import Text

from gonogo import fields
from gonogo.cli.kit import cells, show
from gonogo.cli.kit.fail_on import FailOn
from gonogo.errors import FieldError
from gonogo.flakiness.suspects import settled_verdict, unexplained_together
from gonogo.kernels.registry import named
from gonogo.reports import red_hollow
from gonogo.spec import json_text
from gonogo.spec.diagnoses import SO_FAR, diagnosis_of
from gonogo.spec.verdicts import (
    Explanation,
    Verdict,
    by_verdict,
    severity,
    worst,
    worst_explanation,
)
from gonogo_workers.cli import references

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

Row = dict[str, Any]
"""One seed's result, as the HTTP contract spells it."""


KERNEL = typer.Option(
    "layernorm_bw", help="One of `gonogo kernels list`, or a Python file such as ./softcap.py."
)
REFERENCE_BUILD = typer.Option(
    None, "--reference-build", help="Another build to compare with, beside float64."
)
EPSILON = typer.Option(None, help="Epsilon of the kernel (default 1e-6).")
RTOL = typer.Option(None, help="allclose: relative tolerance.")
ATOL = typer.Option(None, help="allclose: absolute tolerance.")
PCC = typer.Option(None, help="Least Pearson correlation.")
FROBENIUS = typer.Option(None, help="Largest relative Frobenius error.")
ULP = typer.Option(None, help="Largest error in units of the last place.")
INPUTS = typer.Option(None, help='Input regimes as JSON, such as {"regime": "normal", "gamma": 1}.')
NUMERICS = typer.Option(None, help='Numerics as JSON, such as {"input": "fp32"}.')
PARAMETERS = typer.Option(
    None, help='Fields that only this kernel has, as JSON, such as {"num_groups": 8}.'
)
DEADLINE = typer.Option(
    None,
    help="Seconds after which a seed is a hang; default: 20 times what one of its size takes, at"
    " least 30 (120 more for a process's first), at most GONOGO_PER_SEED_DEADLINE_S.",
)
JSON = typer.Option(False, "--json", help="Print one JSON document.")
EXAMPLES = {
    "inputs": '{"regime": "normal"}',
    "numerics": '{"input": "fp32", "output": "fp32"}',
    "parameters": '{"num_groups": 8}',
    "context": '{"name": "suite", "before": []}',
}
"""Flag that holds JSON -> what one may type."""


def json_flag(text: str | None, field: str) -> Any:
    """Return the value of a flag that holds JSON; None when it isn't given. Raises FieldError."""
    if text is None:
        return None
    try:
        return json_text.loads(text)
    except (ValueError, RecursionError) as problem:
        example = EXAMPLES.get(field.rpartition(".")[2])
        limit = None if example is None else f"JSON, such as '{example}'"
        raise FieldError(field, text, f"isn't JSON: {problem}", limit=limit) from None


def check_deadline(deadline: float | None) -> None:
    """Raise FieldError unless the seconds of a deadline are above 0; None is no deadline."""
    if deadline is not None:
        fields.number(deadline, "deadline", above=0)


def shape_flag(text: str) -> list[int]:
    """Return "3,273,1,8462" or "3x273x1x8462" as dimensions. Raises FieldError."""
    try:
        return [int(part) for part in text.replace("x", ",").split(",")]
    except ValueError:
        raise FieldError(
            "test.shape",
            text,
            "must be whole numbers with commas between them",
            limit="such as 3,273,1,8462",
        ) from None


def json_fields(**given: str | None) -> dict[str, Any]:
    """Return the fields of a test whose flags hold JSON and are given. Raises FieldError."""
    return {
        name: json_flag(text, f"test.{name}") for name, text in given.items() if text is not None
    }


@dataclass(frozen=True)
class TestFlags:
    """The flags of a kernel's test."""

    __test__ = False  # pytest: not a test case

    kernel: str = KERNEL
    shape: str | None = typer.Option(None, help="Shape of x, such as 3,273,1,8462.")
    parameters: str | None = PARAMETERS
    epsilon: float | None = EPSILON
    rtol: float | None = RTOL
    atol: float | None = ATOL
    pcc: float | None = PCC
    frobenius: float | None = FROBENIUS
    ulp: float | None = ULP
    inputs: str | None = INPUTS
    numerics: str | None = NUMERICS

    def test(self, shape: str) -> dict[str, Any]:
        """Return the test as JSON without the fields that aren't given. Raises FieldError.

        A kernel that is a Python file is loaded.
        """
        test: dict[str, Any] = {"kernel": named(self.kernel), "shape": shape_flag(shape)}
        if self.epsilon is not None:
            test["epsilon"] = self.epsilon
        comparators = ("rtol", "atol", "pcc", "frobenius", "ulp")
        values = {name: getattr(self, name) for name in comparators}
        test["tolerance"] = {name: value for name, value in values.items() if value is not None}
        return test | json_fields(
            parameters=self.parameters, inputs=self.inputs, numerics=self.numerics
        )


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the report {"verdict", "counts", "seeds", "diagnosis"}.

    The verdict is the worst, where all seeds together overrule single ones; `together` says of
    which outputs, as `gonogo.pool` does. The diagnosis is that of the worst seed that rounding
    doesn't explain; None without one.
    """
    counts = Counter(row["verdict"] for row in rows)
    together = unexplained_together((row["seed"], row["outputs"]) for row in rows)
    verdict = worst(settled_verdict(row["verdict"], row["outputs"], together) for row in rows)
    compared = references.flips(rows)
    return {
        "verdict": verdict.value,
        "counts": by_verdict(counts),
        "seeds": list(rows),
        "diagnosis": _diagnosis(rows, is_certain=bool(together)),
        **({"together": together} if together else {}),
        **({} if compared is None else {"flips": compared}),
    }


def _diagnosis(rows: Iterable[Row], *, is_certain: bool) -> dict[str, Any] | None:
    wrong = [
        row
        for row in rows
        if row.get("explanation") in (Explanation.unexplained, Explanation.suspect)
    ]
    if not wrong:
        return None
    row = min(wrong, key=lambda row: severity(row["verdict"], row["outputs"]))
    diagnosis = diagnosis_of(row["outputs"])
    if diagnosis is None:
        return None
    words = str(diagnosis.words).replace(f"{SO_FAR} ", "") if is_certain else diagnosis.words
    return asdict(replace(diagnosis, seed=row["seed"], repeat=row["repeat"], words=words))


def finish(
    report: Mapping[str, Any], test: TestSpec, title: str, *, as_json: bool, fail_on: FailOn
) -> None:
    """Print the report and end the command.

    The exit code is 1 when the verdict is at least as bad as `fail_on`, and where each seed is
    suspect, unless only a red one makes it so: that is never green.
    """
    if as_json:
        show.print_json(report)
    else:
        _print(report, test, title)
    is_suspect = set(report["counts"]) == {Verdict.suspect} and fail_on is not FailOn.fail
    raise typer.Exit(int(is_suspect or show.failed(report["verdict"], fail_on.value)))


def _print(report: Mapping[str, Any], test: TestSpec, title: str) -> None:
    out = show.console()
    out.print(Text(title, style="bold"), soft_wrap=True)
    rows = report["seeds"]
    judged = [row for row in rows if row["outputs"]]
    if judged:
        out.print(_outputs(judged, test))
    for line in show.arithmetic_lines(judged):
        out.print(line, soft_wrap=True)
    if (compared := references.table(judged)) is not None:
        out.print(compared)
    for output in report.get("flips", ()):
        out.print(references.flips_line(output), soft_wrap=True)
    for row in rows:
        if row.get("message"):
            out.print(
                Text.assemble(
                    f"seed {row['seed']}: ", show.verdict(row["verdict"]), f": {row['message']}"
                ),
                soft_wrap=True,
            )
    print_conclusion(report)
    if both := red_hollow.words(*red_hollow.of_seeds(report["counts"]), "seed"):
        out.print(both, soft_wrap=True)


def print_conclusion(report: Mapping[str, Any]) -> None:
    """Print the diagnosis of a report, its known limits, and its verdict."""
    out = show.console()
    plain = partial(out.print, markup=False, highlight=False, soft_wrap=True)
    if diagnosis := report["diagnosis"]:
        if diagnosis.get("stages"):
            out.print(cells.stages_table(diagnosis["stages"]))
        plain(f"diagnosis: {diagnosis['words']}")
    for name, words in report.get("together", {}).items():
        plain(f"{name}: {words}")
    for words in report.get("known_limits", ()):
        plain(f"a known limit of the simulated Wormhole: {words}")
    verdict = Verdict(report["verdict"])
    line = Text.assemble(
        "verdict: ",
        show.verdict(verdict.value),
        f" ({show.counts(report['counts'])}). {verdict.sentence}",
    )
    out.print(line, soft_wrap=True)


def _outputs(rows: Sequence[Row], test: TestSpec) -> Table:
    """Return a table with a row per output: its worst verdict and its largest numbers."""
    numbers = {
        "max |e|": "max_abs",
        "error ÷ tolerance": "tolerance_ratio",
        "error ÷ rounding": "rounding_ratio",
        "1-PCC": "pcc_deficit",
    }
    table = show.plain_table("output", "verdict", "explanation", *numbers, right=numbers)
    for output in test.outputs:
        results = [row["outputs"][output] for row in rows if output in row["outputs"]]
        if not results:
            table.add_row(output, Text("not produced", style="dim"))
            continue
        explanation = worst_explanation(Explanation(result["explanation"]) for result in results)
        table.add_row(
            output,
            show.verdict(worst(result["verdict"] for result in results).value),
            show.plain_words(explanation),
            *(show.number(_largest(results, name)) for name in numbers.values()),
        )
    return table


def _largest(results: Iterable[Mapping[str, Any]], name: str) -> float | None:
    """Return the largest value of a statistic; an infinite one is stored as null."""
    values = []
    for result in results:
        if (result.get("nonfinite_statistics") or {}).get(name) == "inf":
            return math.inf
        if result.get(name) is not None:
            values.append(result[name])
    return max(values, default=None)

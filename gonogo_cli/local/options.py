"""Shared by `check` and `judge`: flags into a test, seeds into a report and an exit code."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Table
from rich.text import Text

from gonogo.errors import FieldError
from gonogo.flakiness.suspects import settled_verdict, unexplained_together
from gonogo.reports import red_hollow
from gonogo.spec import fields, json_text
from gonogo.spec.diagnoses import SO_FAR, consistent_diagnosis
from gonogo.spec.kernels.registry import KERNELS
from gonogo.spec.verdicts import Explanation, Verdict, worst
from gonogo_cli.kit import show
from gonogo_cli.kit.fail_on import FailOn
from gonogo_cli.local import references

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

Row = dict[str, Any]
"""One seed's result, as the HTTP contract spells it."""


KERNEL = typer.Option(
    "layernorm_bw", help=f"One of {', '.join(KERNELS)}, or of an installed package."
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


def test_from_flags(
    kernel: str,
    shape: str,
    epsilon: float | None,
    tolerance: Mapping[str, float | None],
    given: Mapping[str, str | None],
) -> dict[str, Any]:
    """Return a test as JSON without the fields that aren't given. Raises FieldError.

    given: the flags that hold JSON, by field.
    """
    fields_given = {name: json_flag(text, f"test.{name}") for name, text in given.items()}
    test = {"kernel": kernel, "shape": shape_flag(shape), "epsilon": epsilon} | fields_given
    test["tolerance"] = {name: value for name, value in tolerance.items() if value is not None}
    return {name: value for name, value in test.items() if value is not None}


def summary(rows: Sequence[Row], diagnosis: dict[str, Any] | None) -> dict[str, Any]:
    """Return the report {"verdict", "counts", "seeds", "diagnosis"}.

    The verdict is the worst, where suspect seeds have the one that all seeds together give them;
    `together` says of which outputs, as `gonogo.pool` does.
    """
    counts = Counter(row["verdict"] for row in rows)
    together = unexplained_together((row["seed"], row["outputs"]) for row in rows)
    verdict = worst(settled_verdict(row["verdict"], row["outputs"], together) for row in rows)
    if diagnosis is not None and together:
        words = str(diagnosis["words"]).removeprefix(f"{SO_FAR} ")
        diagnosis = {**diagnosis, "words": words}
    ordered = {verdict.value: counts[verdict.value] for verdict in Verdict if counts[verdict.value]}
    compared = references.flips(rows)
    return {
        "verdict": verdict.value,
        "counts": ordered,
        "seeds": list(rows),
        "diagnosis": diagnosis,
        **({"together": together} if together else {}),
        **({} if compared is None else {"flips": compared}),
    }


def worth_diagnosing(row: Row) -> bool:
    """Return whether rounding fails to explain the seed, so that there is something to find."""
    return row.get("explanation") in (Explanation.unexplained, Explanation.suspect)


def diagnosed(
    test: TestSpec, given: Mapping[str, Any], outputs: Mapping[str, Any], row: Row
) -> dict[str, Any]:
    """Diagnose the outputs of one judged seed; return the diagnosis in plain JSON types."""
    from gonogo.kernels.registry import numerics

    flat = {
        name: array.reshape(test.flat_shape_of(name))
        for name, array in outputs.items()
        if name in test.outputs  # a downstream output has no terms to diagnose
    }
    diagnosis = numerics(test).diagnose(test, given, flat)
    return consistent_diagnosis(diagnosis.to_json(), row.get("explanation"), row["outputs"])


def finish(
    report: Mapping[str, Any], test: TestSpec, title: str, *, as_json: bool, fail_on: FailOn
) -> None:
    """Print the report and end the command.

    The exit code is 1 when the verdict is at least as bad as `fail_on`.
    """
    if as_json:
        show.print_json(report)
    else:
        _print(report, test, title)
    raise typer.Exit(int(show.failed(report["verdict"], fail_on.value)))


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
            out.print(show.stages_table(diagnosis["stages"]))
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
    table = Table(box=None, header_style="dim", pad_edge=False)
    for name in (
        "output",
        "verdict",
        "explanation",
        "max |e|",
        "tolerance ratio",
        "budget ratio",
        "1-PCC",
        "directions (rms)",
    ):
        table.add_column(
            name,
            justify="right"
            if name in ("max |e|", "tolerance ratio", "budget ratio", "1-PCC")
            else "left",
        )
    for output in test.outputs:
        results = [row["outputs"][output] for row in rows if output in row["outputs"]]
        if not results:
            table.add_row(output, Text("not produced", style="dim"))
            continue
        table.add_row(
            output,
            show.verdict(worst(result["verdict"] for result in results).value),
            show.plain_words(
                min(
                    (Explanation(result["explanation"]) for result in results),
                    key=list(Explanation).index,
                )
            ),
            *(
                show.number(_largest(results, name))
                for name in ("max_abs", "tolerance_ratio", "budget_ratio", "pcc_deficit")
            ),
            _directions(results),
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


def _directions(results: Sequence[Mapping[str, Any]]) -> str:
    """Return each direction's largest rms, such as "row 216, xhat 199, scale .7".

    The unit is the standard deviation of rounding.
    """
    names = dict.fromkeys(name for result in results for name in result if name.endswith("_z"))
    parts = [(name.removesuffix("_z"), _largest(results, name)) for name in names]
    return ", ".join(f"{name} {show.number(value)}" for name, value in parts if value is not None)

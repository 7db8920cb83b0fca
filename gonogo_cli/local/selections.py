"""What `check` and `submit` share for selections: flags into a test, iterations into a table,
outcomes into an exit code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Table
from rich.text import Text

from gonogo.errors import FieldError
from gonogo.spec.verdicts import Verdict, worst
from gonogo_cli.kit import show
from gonogo_cli.local import options

if TYPE_CHECKING:
    from gonogo.spec.selections import Selection

SUITE = typer.Option(None, help="gtest, pytest: a suite of the build.")
FILTER = typer.Option(
    None, "--filter", help="gtest, pytest: which of its tests, in the executor's own language."
)
SHUFFLE = typer.Option(
    None, help="gtest, pytest: true (in the order of each seed), or the number of one seed."
)
STAGE = typer.Option([], "--stage", help="pytest: a stage of a staged suite; repeatable.")
_RATIOS = ("tolerance_ratio", "budget_ratio")
OUTCOMES = ("error", "crash", "hang", "failed", "skipped", "not_run", "passed")
"""What a test says of itself, worst first."""
RED = frozenset(OUTCOMES[:4])
"""Outcomes of tests that are never fine, whatever can be said of their numbers."""


def from_flags(
    suite: str | None, words: str | None, shuffle: str | None, stages: Sequence[str]
) -> dict[str, Any]:
    """The job's `test`. Raises FieldError for a shuffle that is neither true nor a number."""
    inner: dict[str, Any] = {"suite": suite, "filter": words, "stages": list(stages) or None}
    if shuffle is not None:
        inner["shuffle"] = shuffle == "true" if shuffle in ("true", "false") else _number(shuffle)
    return {"selection": {name: value for name, value in inner.items() if value is not None}}


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise FieldError(
            "test.selection.shuffle", text, "must be true, or the number of a seed"
        ) from None


def wanted(
    executor: str, suite: str | None, words: str | None, shuffle: str | None, stages: Sequence[str]
) -> bool:
    """Whether the flags ask for a selection and not for a kernel."""
    from gonogo.spec.selections import REPORTERS

    return (
        executor in REPORTERS
        or suite is not None
        or words is not None
        or shuffle is not None
        or bool(stages)
    )


def outcomes_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """How many tests of how many iterations had which outcome, worst first."""
    found: Counter[str] = Counter()
    for row in rows:
        told = [str(each["outcome"]) for each in row["outputs"].values() if each.get("outcome")]
        found.update(told or [row["verdict"]] * (not row["outputs"]))
    return ordered(found)


def ordered(outcomes: Mapping[str, int]) -> dict[str, int]:
    """Counts of outcomes, worst first."""
    return {name: outcomes[name] for name in OUTCOMES if outcomes.get(name)}


def failed(job: Mapping[str, Any], fail_on: str) -> bool:
    """Whether a selection's job or report makes the exit code 1: as any other, and also when a test
    is red, or when none ran.

    Without arrays a red test is `not_judged`, as a green one is: which of them it was must not depend
    on reading the table.
    """
    verdict, outcomes = job.get("verdict"), job.get("outcomes") or {}
    return (
        show.failed(verdict, fail_on)
        or any(outcomes.get(name) for name in RED)
        or verdict == Verdict.not_run.value
    )


def check(
    selection: Selection,
    *,
    executor: str,
    build: str,
    iterations: range,
    repeats: int,
    deadline: float | None,
    as_json: bool,
    fail_on: options.FailOn,
) -> None:
    """Run a selection here, with no server, and end the command with its exit code."""
    from gonogo_workers.attempts.report_evidence import Found, joined, worst_of
    from gonogo_workers.local.reports import reporter

    rows: list[dict[str, Any]] = []
    diagnosis: dict[str, Any] | None = None
    worst_found: tuple[tuple[int, float], dict[str, Any], list[Found]] | None = None
    with (
        reporter(executor, build, deadline_s=deadline) as runner,
        show.progress(show.console(stderr=True)) as bars,
    ):
        task = bars.add_task(build, total=len(iterations) * repeats, note="", visible=not as_json)
        for number in iterations:
            for repeat in range(repeats):
                row, found = runner.run(selection, number, repeat)
                rows.append({**row, "seed": selection.seed_of(number), "iteration": number})
                suspects = worst_of(found)
                if suspects and (worst_found is None or options.severity(row) < worst_found[0]):
                    worst_found = (options.severity(row), rows[-1], suspects)
                bars.update(task, advance=1)
    if worst_found is not None:
        _, row, suspects = worst_found
        facts = [(each, {"explanation": each.judgement.explanation.value}) for each in suspects]
        said = [
            (each.name, options.diagnosed(each.test, each.given, each.outputs, fact))
            for each, fact in facts
        ]
        diagnosis = {
            "seed": row["seed"],
            "iteration": row["iteration"],
            "repeat": row["repeat"],
            **joined(said),
        }
    report = options.summary(rows, with_stages(diagnosis, rows))
    report["outcomes"] = outcomes_of(rows)
    if as_json:
        show.print_json(report)
    else:
        _print(
            report,
            f"{selection.words}, build {build} on {executor}, {len(iterations)} iteration{'s' * (len(iterations) != 1)}",
        )
    raise typer.Exit(int(failed(report, fail_on.value)))


def with_stages(
    diagnosis: dict[str, Any] | None, rows: Iterable[Mapping[str, Any]]
) -> dict[str, Any] | None:
    """The diagnosis with the table of a staged suite's iterations, whose words come first; as it is
    for any other suite.
    """
    from gonogo.spec import stages

    tables = [
        stages.table({"name": name, **entry} for name, entry in row["outputs"].items())
        for row in rows
    ]
    table = stages.combined([each for each in tables if each.stages])
    if not table.stages:
        return diagnosis
    words = " ".join(filter(None, (table.words, (diagnosis or {}).get("words"))))
    return {
        "seed": None,
        "terms": [],
        **(diagnosis or {}),
        "words": words,
        "stages": table.to_json(),
    }


def _print(report: Mapping[str, Any], title: str) -> None:
    out = show.console()
    out.print(Text(title, style="bold"), soft_wrap=True)
    out.print(tests_table(report["seeds"]))
    for row in report["seeds"]:
        if row.get("message"):
            said = Text.assemble(
                f"iteration {row['iteration']}: ",
                show.verdict(row["verdict"]),
                f": {row['message']}",
            )
            out.print(said, soft_wrap=True)
    if report["diagnosis"] and report["diagnosis"].get("stages"):
        out.print(show.stages_table(report["diagnosis"]["stages"]))
    if report["diagnosis"]:
        out.print(
            f"diagnosis: {report['diagnosis']['words']}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    verdict = Verdict(report["verdict"])
    line = Text.assemble(
        "verdict: ",
        show.verdict(verdict.value),
        f" ({show.counts(report['counts'])}). {verdict.sentence}",
    )
    out.print(line, soft_wrap=True)
    out.print(f"tests: {show.counts(report['outcomes'])}", soft_wrap=True)


def tests_table(rows: Iterable[Mapping[str, Any]]) -> Table:
    """One line per test and per output of its arrays: worst verdict, outcomes over the iterations,
    the numbers, the last message.
    """
    table = Table(box=None, header_style="dim", pad_edge=False)
    for name in ("test", "verdict", "outcomes", "tolerance ratio", "budget ratio", "message"):
        table.add_column(name, justify="right" if "ratio" in name else "left")
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        for name, each in row["outputs"].items():
            found.setdefault(name, []).append(each)
    for name, entries in found.items():
        messages = [str(each["message"]) for each in entries if each.get("message")]
        outcomes = outcomes_of(
            [{"outputs": {str(n): each for n, each in enumerate(entries)}, "verdict": ""}]
        )
        largest = [
            max((each[key] for each in entries if each.get(key) is not None), default=None)
            for key in _RATIOS
        ]
        table.add_row(
            Text(name),
            show.verdict(worst(each["verdict"] for each in entries).value),
            show.counts(outcomes) if outcomes else "",
            *("" if value is None else show.number(value) for value in largest),
            Text(messages[-1].partition("\n")[0][:200] if messages else ""),
        )
    return table

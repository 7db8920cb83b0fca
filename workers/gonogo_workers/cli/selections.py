"""Selections in `check` and `submit`: flags into a test, iterations into a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Table
from rich.text import Text

from gonogo.cli.kit import show
from gonogo.cli.kit.fail_on import FailOn
from gonogo.errors import FieldError
from gonogo.reports import red_hollow
from gonogo.reports.outcomes import Outcome
from gonogo.spec.verdicts import Verdict, worst
from gonogo_workers.cli import options

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
NO_KERNEL = "is for kernels: here the program's own tests run, with their shapes and tolerances"
"""The reason why a selection refuses an option."""
_RATIOS = {"error ÷ tolerance": "tolerance_ratio", "error ÷ rounding": "rounding_ratio"}


def from_flags(
    suite: str | None,
    words: str | None,
    shuffle: str | None = None,
    stages: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the job's `test`. Raises FieldError for a shuffle that is no number and not true."""
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


def requested(
    executor: str,
    suite: str | None,
    words: str | None,
    shuffle: str | None = None,
    stages: Sequence[str] = (),
) -> bool:
    """Return whether the flags ask for a selection rather than a kernel."""
    from gonogo.spec.executors import REPORTERS

    return (
        executor in REPORTERS
        or suite is not None
        or words is not None
        or shuffle is not None
        or bool(stages)
    )


def outcomes_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Count the outcomes of all tests in all iterations, worst first."""
    counts: Counter[str] = Counter()
    for row in rows:
        outcomes = [str(test["outcome"]) for test in row["outputs"].values() if test.get("outcome")]
        counts.update(outcomes or [row["verdict"]] * (not row["outputs"]))
    return ordered(counts)


def ordered(outcomes: Mapping[str, int]) -> dict[str, int]:
    """Return counts of outcomes, worst first."""
    return {name.value: outcomes[name] for name in Outcome if outcomes.get(name)}


def failed(job: Mapping[str, Any], fail_on: str) -> bool:
    """Return whether a selection's job or report makes the exit code 1.

    It does as any other job does, and also when a test is red, or when none ran. Without arrays a
    red test is `not_judged`, as a green one is, so the verdict alone can't decide.
    """
    verdict, outcomes = job.get("verdict"), job.get("outcomes") or {}
    if any(map(outcomes.get, red_hollow.RED_OUTCOMES)) or not outcomes.get(Outcome.passed):
        return True
    if verdict in (Verdict.not_judged, Verdict.skipped):  # some were, and some passed
        return fail_on == "any"
    return show.failed(verdict, fail_on)


def check(
    selection: Selection,
    *,
    executor: str,
    build: str,
    iterations: range,
    repeats: int,
    deadline: float | None,
    as_json: bool,
    fail_on: FailOn,
) -> None:
    """Run a selection here, without a server, and end the command with its exit code."""
    from gonogo_workers.local.reports import reporter

    rows: list[dict[str, Any]] = []
    with (
        reporter(executor, build, deadline_s=deadline, tell=show.tell) as runner,
        show.progress(show.console(stderr=True)) as bars,
    ):
        task = bars.add_task(build, total=len(iterations) * repeats, note="", visible=not as_json)
        for number in iterations:
            for repeat in range(repeats):
                row = runner.run(selection, number, repeat)
                rows.append({**row, "seed": selection.seed_of(number), "iteration": number})
                bars.update(task, advance=1)
    report = options.summary(rows)
    report["diagnosis"] = with_stages(report["diagnosis"], rows)
    report["outcomes"] = outcomes_of(rows)
    if as_json:
        show.print_json(report)
    else:
        _print(
            report,
            f"{selection.words}, build {build} on {executor}, "
            f"{len(iterations)} iteration{'s' * (len(iterations) != 1)}",
        )
    raise typer.Exit(int(failed(report, fail_on.value)))


def with_stages(
    diagnosis: dict[str, Any] | None, rows: Iterable[Mapping[str, Any]]
) -> dict[str, Any] | None:
    """Return the diagnosis with the table of a staged suite's iterations.

    The table's words come first. The diagnosis of any other suite stays as it is.
    """
    from gonogo.spec import stages

    tables = [
        stages.table({"name": name, **entry} for name, entry in row["outputs"].items())
        for row in rows
    ]
    table = stages.combined([table for table in tables if table.stages])
    if not table.stages:
        return diagnosis
    words = " ".join(filter(None, (table.words, (diagnosis or {}).get("words"))))
    return {
        "seed": None,
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
            message = Text.assemble(
                f"iteration {row['iteration']}: ",
                show.verdict(row["verdict"]),
                f": {row['message']}",
            )
            out.print(message, soft_wrap=True)
    options.print_conclusion(report)
    counted = [
        red_hollow.of_tests(row["outputs"].values(), row["verdict"]) for row in report["seeds"]
    ]
    red, hollow = (sum(column) for column in zip(*counted, strict=True))
    if both := red_hollow.words(red, hollow, "test"):
        out.print(both, soft_wrap=True)
    out.print(f"tests: {show.counts(report['outcomes'])}", soft_wrap=True)


def tests_table(rows: Iterable[Mapping[str, Any]]) -> Table:
    """Return a table with a row per test, and per output of the arrays that it handed over.

    A row has the worst verdict, the outcomes over the iterations, the largest numbers, and the last
    message.
    """
    table = show.plain_table("test", "verdict", "outcomes", *_RATIOS, "message", right=_RATIOS)
    entries_by_name: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        for name, entry in row["outputs"].items():
            entries_by_name.setdefault(name, []).append(entry)
    for name, entries in entries_by_name.items():
        messages = [str(entry["message"]) for entry in entries if entry.get("message")]
        outcomes = outcomes_of(
            [{"outputs": {str(n): entry for n, entry in enumerate(entries)}, "verdict": ""}]
        )
        largest = [
            max((entry[key] for entry in entries if entry.get(key) is not None), default=None)
            for key in _RATIOS.values()
        ]
        table.add_row(
            Text(name),
            show.verdict(worst(entry["verdict"] for entry in entries).value),
            show.counts(outcomes) if outcomes else "",
            *("" if value is None else show.number(value) for value in largest),
            Text(messages[-1].partition("\n")[0][:200] if messages else ""),
        )
    return table

"""`gonogo rejudge`: judge stored seeds under another tolerance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer

from gonogo.cli.kit import cells, show
from gonogo.cli.kit.body_options import JSON
from gonogo.cli.kit.cells import Cell
from gonogo.cli.kit.client import Client
from gonogo_workers.cli import options

COLUMNS: dict[str, Cell] = {
    "build": "build",
    "jobs": "jobs",
    "seeds": "seeds",
    "old": lambda line: show.counts(line["old"]),
    "new": lambda line: show.counts(line["new"]),
    "changed": "changed",
    "undecided": "undecided",
}


def rejudge(
    test: str = typer.Option(..., help="The test's key."),
    rtol: float | None = typer.Option(
        None, help="allclose: relative tolerance (0 when only --atol is given)."
    ),
    atol: float | None = options.ATOL,
    pcc: float | None = options.PCC,
    frobenius: float | None = options.FROBENIUS,
    ulp: float | None = options.ULP,
    tolerance: str | None = typer.Option(
        None, help="The whole tolerance as JSON, for one that differs from output to output."
    ),
    build: str | None = typer.Option(None, help="Only jobs of this build."),
    store: bool = typer.Option(
        False,
        "--store",
        help="Keep the report on the server. The verdicts of the jobs stay as they are.",
    ),
    reason: str | None = typer.Option(None, help="Say why; the report keeps it."),
    as_json: bool = JSON,
) -> None:
    """Judge a test's stored seeds again, without running anything; show old and new verdicts.

    The flags are the whole new tolerance. Exit codes: 0 every seed was decided, 1 stored numbers
    can't tell for some, 2 usage, 3 infrastructure.
    """
    flags = {"rtol": rtol, "atol": atol, "pcc": pcc, "frobenius": frobenius, "ulp": ulp}
    given = {name: value for name, value in flags.items() if value is not None}
    declared = options.json_flag(tolerance, "tolerance")
    if given and declared is not None:
        raise typer.BadParameter(
            "--tolerance is the whole tolerance: no other flag of one goes with it"
        )
    new = given or declared
    if new is None:
        raise typer.BadParameter("name the new tolerance, such as --rtol 1e-3 --atol 1e-5")
    body = {"test": test, "tolerance": new, "build": build, "store": store, "reason": reason}
    with Client() as client:
        result = client.call("POST", "/rejudgements", body=body)
    if as_json:
        show.print_json(result)
    else:
        _print(result)
    raise typer.Exit(int(result["undecided"] > 0))


def _print(result: Mapping[str, Any]) -> None:
    """Print a line per build."""
    out = show.console()
    tolerances = {name: in_words(limits) for name, limits in result["tolerance"].items()}
    out.print(
        f"{result['test_key']}: tolerance {tolerances['old']} -> {tolerances['new']}",
        highlight=False,
    )
    out.print(cells.table(result["builds"], COLUMNS))
    for reason, count in result["reasons"].items():
        out.print(f"{count} undecided: {reason}", markup=False, soft_wrap=True)
    sentences = {
        f"{result['jobs_left_out']} older jobs were left out; name a --build to see less at "
        "once": result["jobs_left_out"],
        f"{result['jobs_removed']} older jobs can't be judged again: the server's retention "
        "removed their results per seed": result["jobs_removed"],
        f"with the new tolerance the test is {result['new_test_key']}": (
            result["new_test_key"] != result["test_key"]
        ),
        f"stored as {result['id']}; the verdicts of the jobs stay as they are": result["id"],
    }
    for sentence, holds in sentences.items():
        if holds:
            show.say(out, sentence)


def in_words(tolerance: Mapping[str, Any]) -> str:
    """Return a tolerance as "rtol 0.001, atol 0.5", or "dx: rtol ...; dgamma: ..." by output."""
    if any(isinstance(limits, Mapping) for limits in tolerance.values()):
        return "; ".join(f"{output}: {in_words(limits)}" for output, limits in tolerance.items())
    return ", ".join(f"{name} {value}" for name, value in tolerance.items()) or "none"

"""`gonogo watch, diagnose`: follow a server's job, and say what is wrong with its kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import typer

from gonogo import urls
from gonogo.cli.kit import cells, show
from gonogo.cli.kit.body_options import JSON
from gonogo.cli.kit.client import ENDED, Client
from gonogo.cli.kit.fail_on import FAIL_ON, FailOn
from gonogo.reports import red_hollow
from gonogo_service.jobs.noun import JOBS
from gonogo_workers.cli import references, selections

WITHOUT_NUMBERS = {"error", "crash", "hang"}
"""Verdicts of seeds whose message says what happened."""
MAX_RESULTS = 2000
"""Results of a job among which such a seed is looked for."""


def follow(client: Client, job: str, *, quiet: bool = False) -> dict[str, Any]:
    """Show a job's progress bar on stderr until it ends; return the job."""
    record = client.job(job)
    with show.progress(show.console(stderr=True)) as bars:
        task = bars.add_task(
            f"{record.get('kernel')} {record.get('build')}",
            total=record.get("total"),
            completed=record.get("done") or 0,
            note="",
        )
        bars.update(task, visible=not quiet)
        for kind, data in client.follow(job):
            if kind == "progress":
                bars.update(
                    task,
                    completed=data["done"],
                    total=data["total"],
                    note=show.counts(data.get("verdicts") or {}),
                )
            elif kind == "state":
                bars.update(task, note=data.get("reason") or data["state"])
                if data.get("reason") and not quiet and data["state"] not in ENDED:
                    bars.console.print(
                        data["reason"], markup=False, highlight=False, soft_wrap=True
                    )
    return client.job(job)


def report(client: Client, job: dict[str, Any], as_json: bool, fail_on: FailOn) -> None:
    """Print an ended job and exit with 0 or 1; with 3 when the infrastructure failed the job."""
    diagnosis = client.call("GET", f"/jobs/{job['id']}/diagnosis")
    url = client.url + urls.job(job["id"])
    if as_json:
        show.print_json(job | {"diagnosis": diagnosis, "url": url})
    else:
        out = show.console()
        out.print(cells.table([job], JOBS.columns))
        for sentence in _sentences(client, job, diagnosis or {}):
            out.print(sentence, markup=False, highlight=False, soft_wrap=True)
        out.print(url, style="underline", soft_wrap=True)
    raise typer.Exit(exit_code(job, fail_on))


def exit_code(job: Mapping[str, Any], fail_on: str) -> int:
    """Return the exit code of an ended job: 1 as bad as `fail_on`, 3 could not be run, else 0."""
    if job["state"] != "finished":
        return 3 if job["state"] == "failed" else 1
    is_bad = (
        show.failed(job.get("verdict"), fail_on)
        if job.get("outcomes") is None
        else selections.failed(job, fail_on)
    )
    return int(is_bad)


def _sentences(
    client: Client, job: Mapping[str, Any], diagnosis: Mapping[str, Any]
) -> Iterator[object]:
    """Yield what there is to say of an ended job."""
    noun = red_hollow.noun(job.get("test") or {})
    if both := red_hollow.words(job.get("red", 0), job.get("hollow", 0), noun):
        yield both
    if job.get("outcomes"):
        yield f"tests: {show.counts(selections.ordered(job['outcomes']))}"
    if diagnosis.get("words"):
        yield f"diagnosis: {diagnosis['words']}"
    for output in job.get("arithmetic") or ():
        yield output["words"]
    for output in job.get("flips") or ():
        yield references.flips_line(output)
    yield from decided(job)
    if message := first_message(client, job):
        yield message
    if job["state"] == "cancelled":
        yield f"canceled after {job['done']} of {job['total']} seeds: no verdict that is green"
    if job.get("error"):
        yield f"error: {job['error']}"


def decided(job: Mapping[str, Any]) -> list[str]:
    """Return what sequential seeds decided and saved, and what became of suspect ones."""
    stop, suspects = job.get("stop"), job.get("suspects")
    sentences = [] if not stop else [f"seeds: {stop['decision']}, {stop['words']}"]
    return sentences + ([] if not suspects else [f"suspect seeds: {suspects['words']}"])


def watch(
    job: str = typer.Argument(help="The job's id."),
    fail_on: FailOn = FAIL_ON,
    as_json: bool = JSON,
) -> None:
    """Follow a job until it ends, then say its verdict."""
    with Client() as client:
        report(client, follow(client, job, quiet=as_json), as_json, fail_on)


def diagnose(job: str = typer.Argument(help="The job's id."), as_json: bool = JSON) -> None:
    """Say what is wrong with a job's kernel: which fault explains its error.

    For a staged suite, say which stage blocks.
    """
    with Client() as client:
        diagnosis = client.call("GET", f"/jobs/{job}/diagnosis")
    if as_json:
        show.print_json(diagnosis)
        return
    out, diagnosed = show.console(), diagnosis or {}
    if diagnosed.get("stages"):
        out.print(cells.stages_table(diagnosed["stages"]))
    out.print(diagnosed.get("words") or _why_none(diagnosed), markup=False, soft_wrap=True)


def _why_none(diagnosis: Mapping[str, Any]) -> str:
    state, verdict = diagnosis.get("state"), diagnosis.get("verdict")
    if state not in ENDED:
        return f"no diagnosis yet: the job is {state}"
    if verdict in WITHOUT_NUMBERS:
        return f"no diagnosis: the kernel gave no numbers ({verdict}); see `gonogo results`"
    return "no diagnosis: nothing unexplained was seen"


def first_message(client: Client, job: Mapping[str, Any]) -> str | None:
    """Return the message of the first seed without numbers; None where there is no such seed."""
    if not any(job["counts"].get(verdict) for verdict in WITHOUT_NUMBERS):
        return None
    failures = (
        item
        for item in client.pages(f"/jobs/{job['id']}/results", most=MAX_RESULTS, limit=200)
        if item["verdict"] in WITHOUT_NUMBERS
    )
    item = next(failures, None)
    if item is None:
        return None
    messages = [
        f"{name}: {output['message']}"
        for name, output in item["outputs"].items()
        if output["verdict"] in WITHOUT_NUMBERS and output.get("message")
    ]
    noun = "seed" if item.get("iteration") is None else "iteration"
    return (
        f"{noun} {show.sample(item)}: {item.get('message') or (messages or [item['verdict']])[0]}"
    )

"""`gonogo submit`: submit a job from flags, or a file with a suite or jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import typer

from gonogo import urls
from gonogo.cli.kit import show
from gonogo.cli.kit.body_options import JSON, pairs
from gonogo.cli.kit.client import Client, Refused
from gonogo.cli.kit.fail_on import FailOn, fail_on_option
from gonogo.cli.kit.option_groups import grouped, refuse_others
from gonogo.errors import FieldError, JobError
from gonogo_service.cli import suites
from gonogo_service.cli.jobs import follow, report
from gonogo_workers.cli import options, selections

SEQUENTIAL = "sequential"


def seeds_of(text: str, start: int, *, keep_going: bool = False) -> dict[str, Any]:
    """Return "64" or "sequential:500" as the seeds of a job. Raises FieldError."""
    policy, colon, most = text.rpartition(":")
    try:
        count = int(most)
    except ValueError:
        count = 0
    if count < 1 or (colon and policy != SEQUENTIAL):
        raise FieldError(
            "seeds",
            text,
            "is neither a number of seeds nor sequential ones",
            limit=f"such as 64 or {SEQUENTIAL}:500",
        )
    if colon:
        return {
            "policy": SEQUENTIAL,
            "max": count,
            "start": start,
            "stop_on_finding": not keep_going,
        }
    if keep_going:
        raise FieldError(
            "keep-going",
            True,
            "is for sequential seeds: others run all",
            limit=f"--seeds {SEQUENTIAL}:N",
        )
    return {"start": start, "count": count}


def jobs_of(content: Any, path: Path) -> list[dict[str, Any]]:
    """Return the jobs in a file: one job, a list of jobs, or {"jobs": [...]}. Raises JobError."""
    jobs = content.get("jobs", [content]) if isinstance(content, dict) else content
    if not isinstance(jobs, list) or not jobs or not all(isinstance(job, dict) for job in jobs):
        raise JobError(
            f"{path}: must hold a job, a list of jobs, or an object with the list `jobs`"
        )
    return jobs


def _created(
    client: Client, jobs: Sequence[Mapping[str, Any]], file: Path | None
) -> list[dict[str, Any]]:
    """Submit jobs; those of a file all or none, and all problems of all of them are told."""
    if file is None:
        return [client.call("POST", "/jobs", body=job) for job in jobs]
    with suites.problems_in(file):
        if len(jobs) > 1:
            _check(client, jobs)
        return [client.call("POST", "/jobs", body=job) for job in jobs]


def _check(client: Client, jobs: Sequence[Mapping[str, Any]]) -> None:
    """Raise Refused, with the problems of all jobs by their number, before one is submitted."""
    errors: list[dict[str, Any]] = []
    document: dict[str, Any] = {}
    for number, job in enumerate(jobs):
        try:
            client.call("POST", "/jobs:validate", body=job)
        except Refused as problem:
            if not problem.document.get("errors"):
                raise
            document = document or problem.document
            for error in problem.document["errors"]:
                places = {name: f"jobs.{number}.{error[name]}" for name in ("field", "message")}
                errors.append(error | places)
    if errors:
        first = {name: errors[0].get(name) for name in ("field", "value", "limit")}
        raise Refused(errors[0]["message"], {**document, **first, "errors": errors})


def _warn(created: Sequence[Mapping[str, Any]]) -> None:
    """Say on standard error which jobs wait for a worker that doesn't exist now."""
    for reason in dict.fromkeys(job.get("waiting_reason") for job in created):
        if reason is not None:
            show.tell(f"warning: {reason}; the job waits until its queue deadline")


FAIL_ON = fail_on_option("Only with --watch.")


@dataclass(frozen=True)
class TargetFlags:
    """Where the jobs run."""

    executor: str = typer.Option("emulator", help="Executor of the target.")
    arch: str = typer.Option("wormhole", help="Architecture of the target.")
    board: str = typer.Option("n150", help="Board of the target.")


@dataclass(frozen=True)
class SeedFlags:
    """The seeds of the jobs."""

    seeds: str = typer.Option(
        "1", help="How many seeds; sequential:500 runs until they decide, at most 500."
    )
    seed_start: int = typer.Option(0, "--seed-start", help="The first seed.")
    keep_going: bool = typer.Option(
        False,
        "--keep-going",
        help="Sequential seeds: go on after one that rounding doesn't explain.",
    )
    repeats: int = typer.Option(1, min=1, help="Runs of each seed.")


@dataclass(frozen=True)
class SelectionFlags:
    """The tests of a program that exist already."""

    suite: str | None = selections.SUITE
    words: str | None = selections.FILTER


@dataclass(frozen=True)
class WatchFlags:
    """The wait for the verdict, and its exit code."""

    wait: bool = typer.Option(False, "--watch", help="Wait for the verdict.")
    fail_on: FailOn = FAIL_ON
    base: str | None = typer.Option(
        None,
        "--base",
        help="With a suite and --watch: gate on what is new against this build or run.",
    )
    as_json: bool = JSON


OF_JOBS_FILE = frozenset(("file", *(field.name for field in fields(WatchFlags))))
OF_SUITE_FILE = OF_JOBS_FILE | {"build", "label"}
"""The parameters that a file leaves open."""
OF_A_KERNEL = {"reference_build", *(field.name for field in fields(options.TestFlags))}
"""The parameters that say nothing about a program's own tests."""


@grouped
def submit(
    ctx: typer.Context,
    test: options.TestFlags,
    target: TargetFlags,
    selection: SelectionFlags,
    of_seeds: SeedFlags,
    watch: WatchFlags,
    file: Path | None = typer.Argument(
        None,
        help=(
            "YAML, JSON or TOML file: a suite, which is one run (with --build, --label), a "
            "job, or several (without flags)."
        ),
    ),
    build: list[str] = typer.Option([], "--build", help="Build to run; repeatable: one job each."),
    reference_build: str | None = options.REFERENCE_BUILD,
    label: list[str] = typer.Option(
        [], "--label", help="Label the jobs with NAME=VALUE; repeatable."
    ),
) -> None:
    """Submit a job, or a suite as one run, to a server; with --watch, wait for the verdict."""
    labels = pairs(label, "--label")
    if file is not None:
        content = suites.read(file)
        is_suite = suites.is_suite(content)
        allowed = OF_SUITE_FILE if is_suite else OF_JOBS_FILE
        refuse_others(ctx, allowed, f"can't be used with a file: change {file}")
        if is_suite:
            return suites.submit(suites.request(content, build, labels), **asdict(watch), path=file)
        jobs = jobs_of(content, file)
    else:
        chosen = selections.requested(target.executor, selection.suite, selection.words)
        if (test.shape is None and not chosen) or not build:
            raise typer.BadParameter("--build is needed, and --shape for a kernel (or a file)")
        if chosen:
            others = {parameter.name for parameter in ctx.command.params} - OF_A_KERNEL
            refuse_others(ctx, others, selections.NO_KERNEL)
        common: dict[str, Any] = {
            "test": selections.from_flags(selection.suite, selection.words)
            if test.shape is None or chosen
            else test.test(test.shape),
            "target": asdict(target),
            "seeds": seeds_of(of_seeds.seeds, of_seeds.seed_start, keep_going=of_seeds.keep_going),
            "repeats": of_seeds.repeats,
        }
        if reference_build is not None:
            common["reference"] = {"build": reference_build}
        if label:
            common["labels"] = labels
        jobs = [common | {"build": name} for name in build]
    if watch.base is not None:
        raise typer.BadParameter("--base is for suite files; compare jobs with `gonogo compare`")
    with Client() as client:
        created = _created(client, jobs, file)
        if not watch.as_json:
            _warn(created)
        if watch.wait:
            raise typer.Exit(max(_followed(client, job["id"], watch) for job in created))
        if watch.as_json:
            show.print_json(created[0] if len(created) == 1 else {"items": created})
            return
        for job in created:
            address = client.url + urls.job(job["id"])
            show.console().print(f"{job['id']}  {address}", soft_wrap=True, highlight=False)


def _followed(client: Client, job: str, watch: WatchFlags) -> int:
    """Follow a job to its end and tell it; return its exit code."""
    try:
        report(client, follow(client, job, quiet=watch.as_json), watch.as_json, watch.fail_on)
    except typer.Exit as done:
        return done.exit_code
    return 0

"""`gonogo ci`: one command for a pipeline, from the commit's build to the exit code."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from gonogo.ci.rules import build_name, problem_of
from gonogo.cli.kit import show
from gonogo.cli.kit.body_options import JSON, pairs
from gonogo.cli.kit.client import Client, Refused
from gonogo.cli.kit.fail_on import FailOn, fail_on_option
from gonogo.errors import FieldError
from gonogo.spec.builds import EMULATOR, known_build
from gonogo_service.cli import compare, suites
from gonogo_service.cli.pipeline import origin, outcome, reports
from gonogo_service.cli.pipeline.origin import Origin
from gonogo_service.cli.pipeline.outcome import Outcome, Written
from gonogo_service.cli.pipeline.reports import CODE_QUALITY, JUNIT

NONE = "none"
NEWEST_RUNS = 500
"""Runs of the suite among which the base's is looked for."""

FAIL_ON = fail_on_option(
    "A pipeline without a base compares nothing: new then blocks only what could not run."
)


def ci(
    suite: Path = typer.Argument(help="The suite file of the repository (manual: suites)."),
    build: str = typer.Option(
        ...,
        "--build",
        help="Name of the commit's build, with {sha}, {short}, {branch} or {number} in it: "
        "'kernels-{short}'. The base's build is named alike.",
    ),
    executor: str | None = typer.Option(
        None, help="Executor of the build; default: that of the suite's tests."
    ),
    register: bool = typer.Option(
        True, "--register/--no-register", help="Register the commit's build on the server."
    ),
    base: str | None = typer.Option(
        None,
        "--base",
        help="Compare with this build, run or `build@run`; none: with nothing. Default: the build "
        "of the pull request's base, else of the commit before the push.",
    ),
    run_base: bool = typer.Option(
        True,
        "--run-base/--no-run-base",
        help="Run the base as well if it is registered and hasn't run the suite.",
    ),
    fail_on: FailOn = FAIL_ON,
    label: list[str] = typer.Option([], "--label", help="NAME=VALUE of the run; repeatable."),
    commit: str | None = typer.Option(None, help="The commit, or HEAD; default: the pipeline's."),
    branch: str | None = typer.Option(
        None,
        help="Its branch, of a pull request the branch to merge into; default: the pipeline's.",
    ),
    base_commit: str | None = typer.Option(
        None, "--base-commit", help="The commit to compare with; default: the pipeline's."
    ),
    pull_request: int | None = typer.Option(
        None, "--pull-request", help="Number of the pull request; default: the pipeline's."
    ),
    repository: str | None = typer.Option(None, help="OWNER/NAME; default: the pipeline's."),
    junit: Path | None = typer.Option(
        None, "--junit", help=f"Write a JUnit report here; default on GitLab: {JUNIT}."
    ),
    code_quality: Path | None = typer.Option(
        None,
        "--code-quality",
        help=f"Write GitLab's code quality report here; default on GitLab: {CODE_QUALITY}.",
    ),
    summary: Path | None = typer.Option(
        None, "--summary", help="Append a summary in Markdown to this file as well."
    ),
    as_json: bool = JSON,
) -> None:
    """Gate a pipeline: register the commit's build, run a suite, compare with the base.

    Reads commit, branch, pull request and base from GitHub Actions or GitLab CI. Writes annotations
    and a job summary on GitHub, JUnit and code quality reports on GitLab. A base that never ran is
    run, or named in a warning; it fails nothing. Exit codes: 0 clear, 1 blocked, 2 usage, 3
    undecided.
    """
    given = {
        "commit": commit,
        "branch": branch,
        "base": base_commit,
        "pull_request": pull_request,
        "repository": repository,
    }
    source = origin.read(os.environ, given)
    content = suites.read(suite)
    suites.require_suite(content, suite)
    name = _named(build, source.commit, source)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a pipeline that is canceled
    with Client() as client:
        if register and _register(client, name, content, executor, source):
            show.tell(f"registered {name} of {source.series}")
        before, ran, note = _base(client, content, source, build, name, base, run_base)
        run = _run(client, suite, content, source, name, [] if ran else [before], label)
        written = Written.of(suite, content, client.url)
        if before is None:
            result = outcome.of_run(run, written, build=name, note=note, fail_on=fail_on)
            if not as_json:
                with reports.without_commands(source.provider):
                    suites.report(client, run, as_json=False)
        else:
            in_run = f"{before}@{run['id']}" if before in run["builds"] else before
            comparison = compare.watch(client, in_run, f"{name}@{run['id']}", fail_on)
            result = outcome.of_comparison(comparison, run, written, build=name, base=before)
            if not as_json:
                with reports.without_commands(source.provider):
                    compare.report(comparison, False, client.url, with_gate=False)
    _report(result, source.provider, junit, code_quality, summary, as_json)
    raise typer.Exit(result.code)


def _named(template: str, commit: str, source: Origin) -> str:
    """Return the name of a commit's build. Raises FieldError for a template that can't be one."""
    problem = problem_of(template)
    if problem is not None:
        raise FieldError("--build", template, problem, limit="such as kernels-{short}")
    return build_name(template, commit, source)


def _register(
    client: Client, name: str, content: Mapping[str, Any], executor: str | None, source: Origin
) -> bool:
    """Register the commit's build, unless it is known; return whether it was registered.

    A commit that comes to a branch by fast-forward keeps the build of its pull request. Raises
    FieldError for a suite whose tests name several executors, where no option names one.
    """
    defaults = (content.get("defaults") or {}).get("target") or {}
    entries = [one for one in content.get("entries") or () if isinstance(one, Mapping)]
    targets = [{**defaults, **(entry.get("target") or {})} for entry in entries]
    names = {executor} if executor else {str(one.get("executor", EMULATOR)) for one in targets}
    if len(names) != 1:
        reason = "is needed: the suite's tests name several executors"
        raise FieldError("--executor", None, reason, limit=f"one of {', '.join(sorted(names))}")
    if known_build(name) is not None or _is_known(client, name):
        return False
    body = {"name": name, "branch": source.series, "commit": source.commit}
    client.call("POST", "/builds", body={**body, "executor": names.pop()})
    return True


def _is_known(client: Client, build: str) -> bool:
    """Return whether the server knows the build, so that it can run it."""
    try:
        client.call("GET", f"/builds/{build}")
    except Refused as problem:
        if problem.document.get("status") == 404:
            return False
        raise
    return True


def _base(
    client: Client,
    content: Mapping[str, Any],
    source: Origin,
    template: str,
    head: str,
    given: str | None,
    run_base: bool,
) -> tuple[str | None, bool, str]:
    """Return what to compare with, whether it has run, and why there is nothing to compare with."""
    if given == NONE:
        return None, True, "Nothing was compared: --base none."
    if given is not None:
        return given, True, ""
    if source.base is None:
        return None, True, "There is no base: the pipeline names no commit before this one."
    before = _named(template, source.base, source)
    if before == head:
        return None, True, f"There is no base: {head} is its own, as its name has no commit in it."
    runs = client.some("/runs", limit=NEWEST_RUNS, suite=str(content.get("name")))["items"]
    if any(before in run["builds"] and run["state"] in ("finished", "running") for run in runs):
        return before, True, ""
    is_known = _is_known(client, before)
    if run_base and is_known:
        show.tell(f"the base {before} hasn't run this suite: it runs as well")
        return before, False, ""
    how = "hasn't run this suite" if is_known else "was never registered"
    note = f"The base {before} {how}: nothing was compared."
    return None, True, f"{note} Pipelines of its branch make the bases of later ones."


def _run(
    client: Client,
    path: Path,
    content: Mapping[str, Any],
    source: Origin,
    head: str,
    others: list[str | None],
    label: list[str],
) -> dict[str, Any]:
    """Submit the suite and wait for it. Cancel it if the pipeline is canceled."""
    names = [head, *(name for name in others if name is not None)]
    body = suites.request(content, names, pairs(label, "--label"))
    body["commit"] = None
    if source.repository is not None:
        about = {"sha": source.commit, "pull_request": source.pull_request}
        body["commit"] = {"repository": source.repository, **about}
    with suites.problems_in(path):
        accepted = client.call("POST", "/runs", body=body)
    count = accepted["jobs"]
    show.tell(f"{count} job{'s' * (count != 1)}: {client.url}{accepted['links']['page']}")
    try:
        return suites.follow(client, accepted["id"], tell=show.tell)
    except KeyboardInterrupt:
        client.call("POST", f"/runs/{accepted['id']}:cancel")
        show.tell("canceled the run")
        raise


def _report(
    result: Outcome,
    provider: str,
    junit: Path | None,
    code_quality: Path | None,
    summary: Path | None,
    as_json: bool,
) -> None:
    if provider == "gitlab":
        junit, code_quality = junit or Path(JUNIT), code_quality or Path(CODE_QUALITY)
    if junit is not None:
        reports.write_junit(result, junit)
    if code_quality is not None:
        reports.write_code_quality(result, code_quality)
    if summary is not None:
        reports.append(summary, reports.summary(result))
    if provider == "github":
        reports.write_github(result, os.environ)
    if as_json:
        show.print_json(asdict(result))
        return
    if result.note is not None:
        print(result.note)
    print(result.title)

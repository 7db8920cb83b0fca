"""`gonogo ci`: one command for a pipeline, from the commit's build to the exit code."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from gonogo.cli.kit import nouns, show
from gonogo.cli.kit.client import Client
from gonogo.cli.kit.fail_on import FailOn, fail_on_option
from gonogo_service.cli import compare, suites
from gonogo_service.cli.pipeline import builds, github, gitlab, origin, outcome, suite_lines
from gonogo_service.cli.pipeline.origin import Origin
from gonogo_service.cli.pipeline.outcome import Outcome

NONE = "none"

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
        None, "--junit", help=f"Write a JUnit report here; default on GitLab: {gitlab.JUNIT}."
    ),
    code_quality: Path | None = typer.Option(
        None,
        "--code-quality",
        help=f"Write GitLab's code quality report here; default on GitLab: {gitlab.CODE_QUALITY}.",
    ),
    summary: Path | None = typer.Option(
        None, "--summary", help="Append a summary in Markdown to this file as well."
    ),
    as_json: bool = nouns.JSON,
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
    name = builds.named(build, source.commit, source)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a pipeline that is canceled
    with Client() as client:
        if register and builds.register(
            client, name, builds.executor_of(content, executor), source
        ):
            show.tell(f"registered {name} of {source.series}")
        before, ran, note = _base(client, content, source, build, name, base, run_base)
        run = _run(client, suite, content, source, name, [] if ran else [before], label)
        lines = suite_lines.lines(suite, content)
        if before is None:
            result = outcome.of_run(
                run,
                build=name,
                note=note,
                fail_on=fail_on,
                path=suite,
                lines=lines,
                url=client.url,
            )
            if not as_json:
                suites.report(client, run, as_json=False)
        else:
            in_run = f"{before}@{run['id']}" if before in run["builds"] else before
            comparison = compare.watch(client, in_run, f"{name}@{run['id']}", fail_on)
            result = outcome.of_comparison(
                comparison,
                run,
                build=name,
                base=before,
                path=suite,
                lines=lines,
                url=client.url,
            )
            if not as_json:
                compare.report(comparison, False, client.url, with_gate=False)
    _report(result, source, junit, code_quality, summary, as_json)
    raise typer.Exit(result.code)


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
    before = builds.named(template, source.base, source)
    if before == head:
        return None, True, f"There is no base: {head} is its own, as its name has no commit in it."
    if builds.has_run(client, str(content.get("name")), before):
        return before, True, ""
    is_known = builds.is_known(client, before)
    if run_base and is_known:
        show.tell(f"the base {before} hasn't run this suite: it runs as well")
        return before, False, ""
    how = "hasn't run this suite" if is_known else "was never registered"
    return (
        None,
        True,
        (
            f"The base {before} {how}: nothing was compared. "
            "Pipelines of its branch make the bases of later ones."
        ),
    )


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
    body = suites.request(content, names, nouns.pairs(label, "--label"))
    body["commit"] = None
    if source.repository is not None:
        body["commit"] = {
            "repository": source.repository,
            "sha": source.commit,
            "pull_request": source.pull_request,
        }
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
    source: Origin,
    junit: Path | None,
    code_quality: Path | None,
    summary: Path | None,
    as_json: bool,
) -> None:
    on_gitlab = source.provider == "gitlab"
    junit = junit or (Path(gitlab.JUNIT) if on_gitlab else None)
    code_quality = code_quality or (Path(gitlab.CODE_QUALITY) if on_gitlab else None)
    if junit is not None:
        gitlab.write_junit(result, junit)
    if code_quality is not None:
        gitlab.write_code_quality(result, code_quality)
    if summary is not None:
        with summary.open("a", encoding="utf-8") as file:
            file.write(github.summary(result))
    if source.provider == "github":
        github.write(result, os.environ)
    if as_json:
        show.print_json(asdict(result))
        return
    if result.note is not None:
        print(result.note)
    print(result.title)

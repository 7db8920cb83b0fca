"""`gonogo ci` against a server: its builds, its base, its exit code, a canceled pipeline.

The pipelines of GitHub and GitLab themselves run in tests/acceptance/test_pipelines.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

import stored_jobs
from api import on_port
from gonogo.cli.app import main
from gonogo.cli.kit import waiting
from gonogo_service.jobs.api.jobs import JOBS
from suite_runs import SUITE, conclude, finish

BASE, HEAD = "a" * 40, "b" * 40
ON_TTNN = {**SUITE["defaults"], "target": {"executor": "ttnn"}}


@dataclass
class Pipeline:
    """A server, and a pipeline's command; jobs end while the command waits."""

    client: httpx.Client
    run: Callable[..., tuple[int, str, str]]
    wrong: set[str] = field(default_factory=set)
    """Builds whose kernels are wrong, and green."""
    broken: set[str] = field(default_factory=set)
    """Builds whose first seed ends with an error."""
    on_wait: Callable[[], None] = lambda: None

    def register(self, build: str) -> None:
        body = {"name": build, "executor": "ttnn", "branch": "main"}
        assert self.client.post("/api/v1/builds", json=body).status_code == 201


@pytest.fixture
def pipeline(
    migrated_sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> Iterator[Pipeline]:
    file = tmp_path / "suite.yaml"
    file.write_text(yaml.safe_dump({**SUITE, "defaults": ON_TTNN}))
    for variable in ("GITHUB_ACTIONS", "GITLAB_CI"):
        monkeypatch.delenv(variable, raising=False)

    def run(*words: str) -> tuple[int, str, str]:
        known = ("--build", "kernels-{short}", "--commit", HEAD, "--branch", "main")
        monkeypatch.setattr(sys, "argv", ["gonogo", "ci", str(file), *known, *words])
        with pytest.raises(SystemExit) as ended:
            main()
        out, error = capsys.readouterr()
        return int(ended.value.code or 0), out, error

    with on_port(migrated_sqlite_url) as (client, context):
        monkeypatch.setenv("GONOGO_URL", str(client.base_url))
        here = Pipeline(client, run)

        def work(_seconds: float) -> None:
            here.on_wait()
            with context.session() as session:
                for job in JOBS.page(session, state="queued").items:
                    if job.build in here.broken:
                        failure = stored_jobs.unwell(0, "error", "no [b]program[/b]")
                        stored_jobs.report(session, job.id, [failure])
                        stored_jobs.finish(session, job.id)
                    else:
                        finish(session, job.id, wrong=job.build in here.wrong)
                conclude(session)

        monkeypatch.setattr(waiting.time, "sleep", work)
        yield here


def test_a_registered_base_that_never_ran_runs_beside_the_commit(pipeline: Pipeline) -> None:
    before, after = f"kernels-{BASE[:12]}", f"kernels-{HEAD[:12]}"
    pipeline.register(before)
    pipeline.wrong.add(after)
    code, out, error = pipeline.run("--base-commit", BASE, "--pull-request", "7")
    assert code == 1, error
    assert f"registered {after} of main/pull-7" in error
    assert f"the base {before} hasn't run this suite: it runs as well" in error
    assert "Blocked: 3 new hollow passes" in out
    # now it has run, and both sides are wrong: nothing is new
    pipeline.wrong.add(before)
    code, out, error = pipeline.run("--base-commit", BASE, "--json")
    assert (code, "runs as well" in error) == (1, False)
    (first, second) = pipeline.client.get("/api/v1/runs").json()["items"][::-1]
    assert (first["builds"], second["builds"]) == ([after, before], [after])
    assert json.loads(out)["base"] == before


def test_a_name_of_a_commit_is_resolved_here_and_an_unknown_one_refused(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    sha = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True).stdout
    code, _, error = pipeline.run("--commit", "HEAD", "--base", "none")
    assert (code, f"registered kernels-{sha[:12]}" in error) == (0, True), error
    for option, name in (("--commit", "HAED"), ("--base-commit", "--all"), ("--commit", "a" * 39)):
        code, _, error = pipeline.run(f"{option}={name}")
        assert (code, error.startswith(f"gonogo: {option}: ")) == (2, True)
        assert f"a name that git knows in this folder); got '{name}'" in error


def test_what_failed_a_seed_is_told(pipeline: Pipeline) -> None:
    pipeline.broken.add(f"kernels-{HEAD[:12]}")
    code, out, _ = pipeline.run("--base", "none")
    assert code == 3
    assert f"small on kernels-{HEAD[:12]}: seed 0: no [b]program[/b]\n" in out


def test_github_takes_no_name_or_message_for_a_command(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    pipeline.broken.add(f"kernels-{HEAD[:12]}")
    _, out, _ = pipeline.run("--base", "none")
    stop, _, rest = out.partition("\n")
    tables, _, commands = rest.partition(f"\n::{stop.removeprefix('::stop-commands::')}::\n")
    assert "no [b]program[/b]" in tables
    assert commands.startswith("::")


@pytest.mark.parametrize(
    ("words", "note"),
    [
        (["--base-commit", BASE], "was never registered: nothing was compared"),
        (["--base-commit", "0" * 40], "There is no base"),
        (["--base", "none"], "Nothing was compared: --base none"),
        (["--base", "correct"], "The base correct has not run these tests"),
    ],
)
def test_a_base_that_never_ran_is_told_and_fails_nothing(
    pipeline: Pipeline, tmp_path: Path, words: list[str], note: str
) -> None:
    pipeline.wrong.add(f"kernels-{HEAD[:12]}")
    report = tmp_path / "summary.md"
    junit = tmp_path / "junit.xml"
    code, out, error = pipeline.run(*words, "--summary", str(report), "--junit", str(junit))
    assert code == 0, error
    assert note in out
    assert "wouldn't" not in out
    assert note.split(":")[0] in report.read_text()
    assert 'failures="0" errors="0"' in junit.read_text()
    if words[0] == "--base-commit":  # the verdicts of the run still count where they are asked for
        assert pipeline.run(*words, "--fail-on", "hollow")[0] == 1


def test_a_pipeline_that_is_canceled_cancels_its_run(pipeline: Pipeline) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    pipeline.on_wait = interrupt
    code, _, error = pipeline.run("--base", "none")
    assert (code, "canceled the run" in error) == (130, True)
    (run,) = pipeline.client.get("/api/v1/runs").json()["items"]
    assert run["state"] == "cancelled"


def test_wrong_usage_registers_and_runs_nothing(pipeline: Pipeline, tmp_path: Path) -> None:
    code, _, error = pipeline.run("--build", "kernels {short}")
    assert (code, "has a character that builds' names can't have" in error) == (2, True)
    (tmp_path / "suite.yaml").write_text(
        yaml.safe_dump({**SUITE, "entries": [{"target": {"executor": e}} for e in ("a", "b")]})
    )
    code, _, error = pipeline.run("--base", "none")
    assert (code, "several executors (allowed: one of a, b)" in error) == (2, True)
    assert pipeline.client.get("/api/v1/runs").json()["items"] == []
    assert pipeline.client.get("/api/v1/builds?executor=a").json()["items"] == []

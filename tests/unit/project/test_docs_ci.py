"""The pipelines of the pages about CI are those of examples/repository, have the form that GitHub
and GitLab want, and each `gonogo` line is a real command with real options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gonogo.cli.app import COMMANDS, UsageError, load

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples/repository"
PAGES = ("ci", "ci_github", "ci_gitlab", "gate")
PAGE = "".join((ROOT / f"docs/{name}.md").read_text() for name in PAGES)
BLOCKS = dict(re.findall(r"```\w+ file=(\S+)\n(.*?)```", PAGE, re.DOTALL))
ACTION = yaml.safe_load((EXAMPLE / ".github/actions/gonogo/action.yml").read_text())
GITHUB = yaml.safe_load((EXAMPLE / ".github/workflows/numerics.yml").read_text())
GITLAB = yaml.safe_load((EXAMPLE / ".gitlab-ci.yml").read_text())
TEMPLATE = yaml.safe_load((EXAMPLE / ".gitlab/gonogo.yml").read_text())[".gonogo"]


def commands() -> Iterator[list[str]]:
    """Yield the words of each gonogo line, without what belongs to the shell."""
    texts = [step["run"] for step in ACTION["runs"]["steps"] if "run" in step]
    texts += TEMPLATE["script"]
    texts += re.findall(r"```(?:sh|text)[^\n]*\n(.*?)```", PAGE, re.DOTALL)
    for line in (line.strip() for text in texts for line in text.splitlines()):
        if line.startswith("gonogo "):
            command = line.partition(" > ")[0]
            yield [word for word in shlex.split(command, comments=True)[1:] if word != "$OPTIONS"]


def parsed(words: list[str]) -> Any:
    """Return the parameters as the command reads them. Raises its error for a wrong one."""
    command, rest = load(words[0]), words[1:]
    if hasattr(command, "commands"):
        command, rest = command.commands[rest[0]], rest[1:]
    return command.make_context(words[0], rest).params


def test_the_page_shows_the_files_of_the_example() -> None:
    assert set(BLOCKS) == {
        "kernels/layernorm.py",
        "kernels_executor.py",
        "publish.sh",
        "tests/numerics.yaml",
        ".github/workflows/numerics.yml",
        ".github/actions/gonogo/action.yml",
        ".gitlab-ci.yml",
        ".gitlab/gonogo.yml",
    }
    for path, text in BLOCKS.items():
        assert text == (EXAMPLE / path).read_text(), path


def test_every_command_is_real() -> None:
    lines = list(commands())
    assert len(lines) >= 10
    assert {words[0] for words in lines} == {"ci", "compare", "submit", "tokens", "up", "waivers"}
    assert {words[0] for words in lines} <= set(COMMANDS)
    for words in lines:
        parsed(list(words))
    with pytest.raises(UsageError, match="--no-such-option"):
        parsed(["ci", "x.yaml", "--build", "x", "--no-such-option"])


def test_the_github_workflow_has_the_form_that_github_wants() -> None:
    job = GITHUB["jobs"]["gauge"]
    assert set(GITHUB[True]) == {
        "push",
        "pull_request",
    }  # YAML 1.1 reads `on` as true; GitHub doesn't
    assert GITHUB["permissions"] == {"contents": "read"}
    assert {"runs-on", "timeout-minutes", "if", "env", "steps"} == set(job)
    steps = [*job["steps"], *ACTION["runs"]["steps"]]
    assert all(("uses" in step) != ("run" in step) for step in steps)
    assert all("shell" in step for step in ACTION["runs"]["steps"] if "run" in step)
    assert "head.repo.full_name == github.repository" in job["if"]
    # nothing of an event is pasted into a script, where a branch's name could be a command
    assert not any("${{" in step.get("run", "") for step in steps)


def test_the_gitlab_job_has_the_form_that_gitlab_wants() -> None:
    job = GITLAB["gauge"]
    assert GITLAB["include"] == [{"local": ".gitlab/gonogo.yml"}]
    assert job["extends"] == ".gonogo"
    assert all(isinstance(line, str) for line in (*TEMPLATE["script"], *job["before_script"]))
    assert [set(rule) for rule in TEMPLATE["rules"]] == [{"if"}, {"if"}]
    assert TEMPLATE["allow_failure"] == {"exit_codes": [3]}
    assert set(TEMPLATE["artifacts"]["reports"]) == {"junit", "codequality"}

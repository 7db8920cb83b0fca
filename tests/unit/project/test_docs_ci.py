"""The workflows in docs/ci.md: they are YAML of the right form, and each `gonogo` line in them is a
real command with real options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gonogo_cli.app import COMMANDS, UsageError, load

PAGE = Path(__file__).parents[3] / "docs/ci.md"
BLOCKS = {
    name: yaml.safe_load(text)
    for name, text in re.findall(r"```yaml\n# (\S+)\n(.*?)```", PAGE.read_text(), re.DOTALL)
}
GITHUB, GITLAB = BLOCKS[".github/workflows/numerics.yml"], BLOCKS[".gitlab-ci.yml"]


def scripts() -> list[str]:
    """Return every line that a shell would run, also those that the page shows outside of the
    workflows."""
    steps = GITHUB["jobs"]["gauge"]["steps"]
    texts = (
        [step["run"] for step in steps if "run" in step]
        + GITLAB["gauge"]["script"]
        + GITLAB["gauge"]["after_script"]
    )
    texts += re.findall(r"```\n(gonogo .*?)```", PAGE.read_text(), re.DOTALL)
    return [line.strip() for text in texts for line in text.splitlines()]


def commands() -> Iterator[list[str]]:
    """Yield the words of each gonogo line, without what belongs to the shell."""
    for line in scripts():
        if line.startswith("gonogo "):
            yield shlex.split(re.split(r"\s(?:>|\|\|)\s", line)[0], comments=True)[1:]


def parsed(words: list[str]) -> Any:
    """Return the parameters as the command reads them. Raises its error for a wrong one."""
    command = load(words[0])
    return command.make_context(words[0], words[1:]).params


def test_every_command_is_real_and_the_gates_watch() -> None:
    lines = list(commands())
    assert len(lines) == 9
    assert {words[0] for words in lines} == {"submit", "compare"} <= set(COMMANDS)
    calls = [(words[0], parsed(list(words))) for words in lines]
    assert all(given["wait"] for name, given in calls if name == "submit")
    assert any(given["base"] == "$BASE" for name, given in calls if name == "submit")
    with pytest.raises(UsageError, match="--no-such-option"):
        parsed(["submit", "x.yaml", "--no-such-option"])


def test_the_github_workflow_has_the_form_that_github_wants() -> None:
    job = GITHUB["jobs"]["gauge"]
    assert set(GITHUB[True]) == {
        "push",
        "pull_request",
    }  # YAML 1.1 reads `on` as true; GitHub doesn't
    assert GITHUB["permissions"] == {"contents": "read"}
    assert {"runs-on", "timeout-minutes", "if", "env", "steps"} == set(job)
    assert all(("uses" in step) != ("run" in step) for step in job["steps"])
    assert "head.repo.full_name == github.repository" in job["if"]
    # nothing of an event is pasted into a script, where a branch's name could be a command
    assert not any("${{" in step.get("run", "") for step in job["steps"])


def test_the_gitlab_job_has_the_form_that_gitlab_wants() -> None:
    job = GITLAB["gauge"]
    assert all(isinstance(line, str) for line in (*job["script"], *job["after_script"]))
    assert [set(rule) for rule in job["rules"]] == [{"if"}, {"if"}]
    assert job["allow_failure"] == {"exit_codes": [3]}

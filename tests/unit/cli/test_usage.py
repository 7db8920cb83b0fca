"""A wrong command line is told in one line, with the word that was meant."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

import gonogo.settings
from gonogo.cli.app import COMMANDS, load, main
from gonogo.cli.kit import show
from gonogo.cli.kit.fail_on import HELP, FailOn
from gonogo.errors import FieldError
from gonogo.kernels.registry import KERNELS, register
from gonogo_workers.cli import selections

NIGHTLY = Path(__file__).resolve().parents[3] / "examples" / "nightly.yaml"
CHECK = "check --shape 3,4"
MISTYPED, BROKEN = "mistyped.yaml", "broken.yaml"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder with two wrong files, next to a server that nobody asks."""
    (tmp_path / MISTYPED).write_text("name: x\nentires: []\n")
    (tmp_path / BROKEN).write_text("name: x\n  a: [\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GONOGO_URL", "http://127.0.0.1:9")
    gonogo.settings.load.cache_clear()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("jbos list", "there is no command 'jbos'; did you mean 'jobs'? (gonogo --help)"),
        ("suites lst", "there is no command 'lst'; did you mean 'list'? (gonogo suites --help)"),
        ("waivers add", "'add'; did you mean 'create'? (gonogo waivers --help)"),
        ("tokens revoke x", "'revoke'; did you mean 'remove'? (gonogo tokens --help)"),
        ("check --shap 3,4", "no option --shap; did you mean '--shape'? (gonogo check --help)"),
        ("watch x --fail-on hollo", "--fail-on: 'hollo' is not one of new, fail, hollow"),
        ("watch x --fail-on hollo", "did you mean 'hollow'? (gonogo watch --help)"),
        ("check --seeds few", "--seeds: must be an integer of at least 1; got 'few' (gonogo check"),
        ("check --seeds sequential:500", "; gonogo submit has sequential seeds (gonogo check"),
        ("jobs list --limit 0", "--limit: must be at least 1 (gonogo jobs list --help)"),
        ("tokens create", "--name is missing (gonogo tokens create --help)"),
        ("jobs show", "ID is missing (gonogo jobs show --help)"),
        ("check --kernel layernrm --shape 3,4", "test.kernel: unknown value; did you mean 'layern"),
        ("check --shape 3,4 --build corect", "unknown build of layernorm_bw; did you mean 'corre"),
        (f"{CHECK} --build correct --reference-build tt-train-2024", "mean 'tt-train-2025'?"),
        ("check --kernel rmsnorm_fw --shape 3,4 --build list", "`gonogo kernels show rmsnorm_fw`)"),
        ("check", "test.shape: is required (allowed: such as --shape 3,273,1,8462)"),
        ("check --shape 3,4 --tolerance 1", "there is no option --tolerance (gonogo check --help)"),
        ("check more", "unexpected: more (gonogo check --help)"),
        ("check --shape 3,4 --numerics fp32", """JSON, such as '{"input": "fp32", """),
        ("check --executor gtest --build mein", "unknown build of gtest (allowed: a build "),
        ("check --executor pytest --build x --rtol 1", "--rtol is for kernels: here the program's"),
        ("submit --executor pytest --build x --shape 3", "--shape is for kernels: here the "),
        (f"submit {NIGHTLY} --kernel layernorm_fw", "--kernel can't be used with a file: change "),
        (f"suites push {MISTYPED}", "it has no `entries`; did you mean `entries` by `entires`?"),
        (f"suites push {BROKEN}", "can't be read: line 2, column 4: mapping values are not"),
        ("suites push nowhere.yaml", "nowhere.yaml can't be read: No such file or directory"),
        ("check --shape 3,4 --executor emulatr", "unknown executor; did you mean 'emulator'?"),
        ("check --executor gtest --suite x", "build: is needed for gtest (allowed: a name of "),
        ("gauge --shape 3,4 --executor emulatr", "unknown executor; did you mean 'emulator'?"),
        ("up --executor emulatr", "unknown executor; did you mean 'emulator'?"),
        ("doctor --part pyton", "no such part: pyton; did you mean 'python'?"),
        ("kernels show rmsnorm", "kernel: unknown value; did you mean 'rmsnorm_fw'?"),
    ],
)
def test_a_wrong_word_is_told_in_one_line(
    line: str, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gonogo", *line.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    out, error = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    (line_of_error,) = error.splitlines()
    assert words in line_of_error
    assert len(line_of_error) < 300


def test_a_misspelled_setting_is_named_where_a_command_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GONOGO_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("GONOGO_TOKN", "x")
    gonogo.settings.load.cache_clear()
    monkeypatch.setattr(sys, "argv", ["gonogo", "jobs", "list"])
    with pytest.raises(SystemExit) as ended:
        main()
    first, second = capsys.readouterr().err.splitlines()
    assert (ended.value.code, "can't be reached" in first) == (3, True)
    assert second == "nobody reads GONOGO_TOKN; did you mean 'GONOGO_TOKEN'?"
    monkeypatch.setenv("GONOGO_PORT", "none")
    gonogo.settings.load.cache_clear()
    with pytest.raises(SystemExit) as ended:
        main()
    first, _ = capsys.readouterr().err.splitlines()
    assert (ended.value.code, first.startswith("gonogo: GONOGO_PORT: ")) == (2, True)
    gonogo.settings.load.cache_clear()


def test_after_two_dashes_json_is_a_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gonogo", "watch", "--", "--json"])
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().err.startswith("gonogo: ")


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help_in_plain_sentences(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gonogo", name, "--help"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert f"Usage: gonogo {name}" in capsys.readouterr().out
    assert COMMANDS[name].line.endswith(".")


def test_a_long_list_of_names_is_cut_in_the_sentence_alone() -> None:
    names = "one of " + ", ".join(f"n{number}" for number in range(40))
    problem = FieldError("build", "x", "unknown build", limit=names)
    assert problem.limit == names
    assert "n9, n10, n11, ... (40 in all)" in str(problem)


def test_every_kernel_is_listed_and_every_build_has_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gonogo", "kernels", "show", "groupnorm_fw"])
    with pytest.raises(SystemExit) as ended:
        main()
    out = capsys.readouterr().out
    assert ended.value.code == 0
    assert "num_groups" in out
    assert "The right kernel." in out


def test_a_kernel_s_name_is_registered_once() -> None:
    other = replace(KERNELS["softmax"], name="layernorm_bw")
    with pytest.raises(ValueError, match="there is a kernel 'layernorm_bw' already"):
        register(other)


def test_fail_on_is_one_option_wherever_it_is() -> None:
    every = ((name, option) for name in COMMANDS for option in load(name).params)
    options = {name: option for name, option in every if "--fail-on" in option.opts}
    assert set(options) == {"check", "judge", "gauge", "submit", "watch", "compare", "ci"}
    assert {option.default for option in options.values()} == {"new"}
    assert {option.type_descriptor.annotation for option in options.values()} == {FailOn}
    assert all(option.help.startswith(HELP) for option in options.values())


@pytest.mark.parametrize("level", FailOn)
@pytest.mark.parametrize("verdict", ["not_judged", "skipped", "not_run", None])
def test_nothing_judged_is_never_a_success(level: FailOn, verdict: str | None) -> None:
    assert show.failed(verdict, level)
    nothing: list[dict[str, int]] = [{}, {"skipped": 2}, {"not_run": 1, "skipped": 1}]
    for outcomes in nothing:
        assert selections.failed({"verdict": verdict, "outcomes": outcomes}, level)
    green = {"verdict": "not_judged", "outcomes": {"passed": 1, "skipped": 1}}
    assert selections.failed(green, level) is (level == "any")

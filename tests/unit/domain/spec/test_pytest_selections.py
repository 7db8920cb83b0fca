"""A job's choices among a build's pytest suites: filters that must stay filters, orders, seeds and
stages; and the refused ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gonogo.spec import stages
from pytest_projects import Project, outcomes

PASSES = "def test_a(): pass\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    # what else is installed here takes a second to load
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    return Project(tmp_path, monkeypatch)


def test_nothing_collected_or_selected_is_an_empty_list(project: Project) -> None:
    project.write(helper="def test_not_found(): pass\n")
    assert project.reports({}, {}) == []
    project.write(test_a=PASSES)
    for words in ("nothing_like_it", "test_a.py::test_b", "../test_a.py"):
        assert project.reports({"filter": words}, {}) == []


def test_what_pytest_can_t_do_is_one_error_with_its_words(project: Project) -> None:
    project.write(test_a=PASSES)
    (report,) = project.reports({"filter": "a b c"}, {})
    assert (report["name"], report["outcome"]) == ("(pytest)", "error")
    assert "Wrong expression" in report["message"]
    project.write(conftest="raise RuntimeError('no toolchain')\n")
    (report,) = project.reports({}, {})
    assert (report["name"], report["outcome"]) == ("(pytest)", "error")
    assert "no toolchain" in report["message"]


def test_a_test_that_ends_the_whole_run_hides_nothing(project: Project) -> None:
    ends = "import pytest\ndef test_b(): pytest.exit('out of memory')\ndef test_c(): pass\n"
    project.write(test_a=PASSES + ends)
    reports = project.reports({}, {})
    assert [report["outcome"] for report in reports] == ["passed", "error", "skipped", "error"]
    assert reports[-1]["name"] == "(pytest)"
    assert "out of memory" in reports[1]["message"]


def test_filters_choose_by_expression_or_by_node_id(project: Project) -> None:
    cases = "import pytest\n@pytest.mark.parametrize('n', [1, 12])\ndef test_x(n): pass\n"
    methods = "class TestC:\n    def test_x(self): pass\n    def test_z(self): pass\n"
    project.write(test_a=f"{cases}def test_y(): pass\n", ops__test_c=methods)
    project.write(test_b="raise OSError\n")  # files that hold nothing chosen aren't even imported
    suite = {"paths": ["test_a.py", "ops"]}

    def names(words: str, suite: dict[str, Any] = suite) -> list[str]:
        return [report["name"] for report in project.reports({"filter": words}, suite)]

    one, twelve = "test_a.py::test_x[1]", "test_a.py::test_x[12]"
    x, z = "ops/test_c.py::TestC::test_x", "ops/test_c.py::TestC::test_z"
    assert names("x and not 12") == [one, x]
    assert names(one) == [one]
    assert names("test_a.py::test_x") == [one, twelve]
    assert names("ops/test_c.py::TestC\ntest_a.py::test_y") == ["test_a.py::test_y", x, z]
    assert names("ops/") == [x, z]
    # the suite's own filter is narrowed, never widened
    assert names("z or nothing", {"paths": ["."], "filter": ["ops/test_c.py"]}) == [z]
    with pytest.raises(ValueError, match="parentheses"):
        names("x) or (y", {**suite, "filter": "z"})


@pytest.mark.parametrize(
    "words", ["--co", "-p no:terminal", "--rootdir=/", "-c/dev/null", "/etc/../", "@file"]
)
def test_a_filter_never_becomes_an_option_or_a_path(project: Project, words: str) -> None:
    project.write(test_a=PASSES)
    assert set(outcomes(project.reports({"filter": words}, {})).values()) <= {"error"}


def test_a_shuffle_s_seed_is_the_order(project: Project) -> None:
    six = "".join(f"def test_{number}(): pass\n" for number in range(6))
    project.write(test_a=six, test_b=six, test_c=six)

    def order(shuffle: Any = True, **more: Any) -> list[str]:
        return [report["name"] for report in project.reports({"shuffle": shuffle}, {}, **more)]

    plain, first = order(shuffle=None), order(iteration=3)
    assert first != plain
    assert sorted(first) == sorted(plain)
    files = [name.partition("::")[0] for name in first]
    assert files == [file for file in dict.fromkeys(files) for _ in range(6)]
    assert order(shuffle=3) == order(seed=3, iteration=9) == first
    assert order(iteration=4) != first


def test_the_seed_reaches_the_test(project: Project) -> None:
    project.write(test_a="def test_a(gonogo): gonogo.measure('seed', gonogo.seed)\n")
    for more, seed in (({}, 5.0), ({"seed": 11}, 11.0)):
        (report,) = project.reports({}, {}, iteration=5, **more)
        assert report["measurements"] == {"seed": seed}


FACTORY = {"files": ["test_2.py", "test_2b.py"], "requires": ["factory.log"]}
STAGES = {
    "stages": [
        {"name": "api", "files": ["test_1.py"]},
        {"name": "factory", **FACTORY},
        {"name": "stubs", "files": ["test_3.py"]},
        {"name": "kernels", "files": ["test_4.py"], "timeout_s": 60},
    ]
}


def staged(project: Project, **selection: Any) -> list[str]:
    """Return each stage's status, with its reason."""
    results = stages.table(project.reports(selection, STAGES), STAGES).stages
    return [f"{stage.name} {stage.status.value}: {stage.reason}" for stage in results]


def test_stages_run_in_order_and_what_follows_a_failed_one_is_blocked(project: Project) -> None:
    project.write(test_1=PASSES, test_2="def test_factory(): open('factory.log', 'w')\n")
    project.write(test_3="def test_stub(): assert 0, 'no'\n", test_4="raise OSError\n")
    assert staged(project) == [
        "api passed: ",
        "factory partial: missing: test_2b.py",
        "stubs failed: no test passed, first test_3.py::test_stub: AssertionError: no",
        "kernels blocked: blocked by 'stubs'",
    ]


def test_asking_for_a_stage_runs_it_and_those_before_it(project: Project) -> None:
    project.write(test_1=PASSES, test_2=PASSES, test_2b=PASSES, test_3=PASSES, test_4=PASSES)
    some = staged(project, stages=["factory"])
    assert some == ["api passed: ", "factory partial: missing: factory.log"]
    (project.root / "factory.log").touch()
    every = staged(project, stages=["kernels", "api"])
    assert every == [f"{name} passed: " for name in ("api", "factory", "stubs", "kernels")]


def test_a_stage_without_tests_is_failed_and_a_crash_beside_a_pass_is_partial(
    project: Project,
) -> None:
    dies = "import os\ndef test_dies(): os.abort()\n"
    project.write(test_1=PASSES + dies, test_2="", test_2b="")
    api, *others = staged(project)
    assert api.startswith("api partial: ")
    assert others == [
        "factory failed: no test was found; missing: factory.log",
        *(f"{name} blocked: blocked by 'factory'" for name in ("stubs", "kernels")),
    ]


@pytest.mark.parametrize(
    ("selection", "suite", "words"),
    [
        ({"suite": "other"}, {}, "no suite 'other'; it has: all"),
        ({"stages": ["api"]}, {}, "has no stages"),
        ({"stages": ["launch"]}, STAGES, "no stage 'launch'; it has: api, factory, stubs, kernels"),
        ({"filter": "x"}, STAGES, "a staged suite takes no filter"),
        ({}, {"path": ["."]}, "unknown field; allowed: root, paths"),
        ({}, {"root": "tests"}, "must be the absolute path"),
        ({}, {"timeout_s": 0}, "above 0"),
        ({}, {"stages": [{"name": "a", "files": []}]}, "must name the stage's tests"),
        ({}, {**STAGES, "filter": "x"}, "neither paths nor filter"),
    ],
)
def test_what_can_t_be_run_is_refused_in_words(
    project: Project, selection: dict[str, Any], suite: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        project.reports(selection, suite)


def test_a_build_that_the_builds_file_doesn_t_describe_is_refused(project: Project) -> None:
    executor = project.executor({})
    executor.close()
    with pytest.raises(ValueError, match="has no pytest build 'other'"):
        type(executor)("other")

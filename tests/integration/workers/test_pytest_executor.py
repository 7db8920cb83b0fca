"""The pytest executor against real runs of pytest: every outcome, crashes, hangs, arrays handed
over, strange surroundings."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gonogo_workers.reports.rows import reports_of
from patience import scaled
from pytest_projects import Project, outcomes


def _set_up(patch: pytest.MonkeyPatch) -> None:
    # other installed plug-ins take a second to load
    patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    # this run's variable must not reach the projects' runs
    patch.setenv("PYTEST_CURRENT_TEST", "tests/unit/of_ours.py::test (call)")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    _set_up(monkeypatch)
    return Project(tmp_path, monkeypatch)


ALL = """
    import time
    import numpy as np
    import pytest

    @pytest.mark.parametrize("value", ["a b", "x/y::z[1]", "ü", "; rm -rf /"])
    def test_odd(value): pass

    def test_red():
        time.sleep(0.05)
        for number in (1, 2):
            assert number == 1, f"got {number}"

    @pytest.mark.xfail(reason="known")
    def test_xfail(): assert 0

    @pytest.mark.xfail(reason="known")
    def test_xpass(): pass

    @pytest.mark.xfail(reason="known", strict=True)
    def test_strict(): pass

    def test_skipped(): pytest.skip("no card")

    @pytest.fixture
    def device(): raise RuntimeError("no device")

    def test_setup(device): pass

    @pytest.fixture
    def leaking():
        yield
        raise RuntimeError("left open")

    def test_teardown(leaking): pass

    def test_both(leaking): assert 0

    def test_numbers(gonogo, record_property):
        gonogo.measure("speed", np.float32(2.5))
        gonogo.measure("odd", float("nan"))
        record_property("count", 3)
        record_property("word", "x")
        record_property("truth", True)
    """


MORE = {
    "test_broken": "import nothing_here_4711\n",
    "test_module": "import pytest\npytest.skip('not here', allow_module_level=True)\n",
    "test_parts": """
    def test_parts(subtests):
        for number in range(3):
            with subtests.test(number=number):
                assert number == 1
    """,
    "test_texts": "def test_texts(record_property):\n    record_property('\\ud800', 1)\n"
    "    raise ValueError('a\\0b\\udfff')\n",
    "test_loud": "def test_loud():\n    print('x' * 50_000_000)\n    assert 0\n",
    "test_forks": """
    import os
    def test_forks():
        child = os.fork()
        assert child, "the copy fails and ends by itself"
        os.waitpid(child, 0)
    """,
    "test_slow": "import pytest, time\n@pytest.mark.timeout(0.2, method='signal')\n"
    "def test_slow(): time.sleep(60)\n",
    "test_where": """
    import os, sys
    def test_place(record_property): assert [sys.executable, os.getcwd()] == WANTED
    def test_path(): import pytest_executor
    """,
}
"""Further modules of the same run: a process of pytest for each of these would take most of this
file's time."""


@pytest.fixture(scope="module")
def all_reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The reports of one run of all modules above, by the names of the tests or modules."""
    with pytest.MonkeyPatch.context() as patch:
        _set_up(patch)
        project = Project(tmp_path_factory.mktemp("all"), patch)
        project.write(test_all=ALL, **MORE)
        with (project.root / "test_where.py").open("a") as where:
            where.write(f"WANTED = {[sys.executable, os.path.realpath(project.root)]!r}\n")
        with project.running({"all": {"paths": ["."]}}, ("-p", "pytest_timeout")) as executor:
            reports = executor.report({"suite": "all"}, iteration=0)
    assert len({report["name"] for report in reports}) == len(reports)
    return {report["name"].partition("::")[2] or report["name"]: report for report in reports}


def test_every_outcome_is_folded_into_one_report_per_test(
    all_reports: dict[str, dict[str, Any]],
) -> None:
    assert {name: report["outcome"] for name, report in all_reports.items()} == {
        "test_odd[a b]": "passed",
        "test_odd[x/y::z[1]]": "passed",
        "test_odd[\\xfc]": "passed",
        "test_odd[; rm -rf /]": "passed",
        "test_red": "failed",
        "test_xfail": "skipped",
        "test_xpass": "passed",
        "test_strict": "failed",
        "test_skipped": "skipped",
        "test_setup": "error",
        "test_teardown": "error",
        "test_both": "failed",
        "test_numbers": "passed",
        "test_broken.py": "error",
        "test_module.py": "skipped",
        "test_parts": "failed",
        "test_texts": "failed",
        "test_loud": "failed",
        "test_forks": "passed",
        "test_slow": "hang",
        "test_place": "passed",
        "test_path": "failed",
    }
    assert all_reports["test_red"]["name"] == "test_all.py::test_red"


def test_each_report_says_what_happened(all_reports: dict[str, dict[str, Any]]) -> None:
    red, both = all_reports["test_red"], all_reports["test_both"]
    assert red["message"] == "AssertionError: got 2\nassert 2 == 1\ntest_all.py:12"
    assert red["failures"] == [
        {"expression": 'assert number == 1, f"got {number}"', "count": 1, "message": red["message"]}
    ]
    assert 50 < red["duration_ms"] < scaled(10_000)
    assert all_reports["test_setup"]["duration_ms"] is None
    for name, phrase in (
        ("test_setup", "in setup: RuntimeError: no device"),
        ("test_teardown", "in teardown: RuntimeError: left open"),
        ("test_xfail", "failed as expected (xfail): known"),
        ("test_xpass", "passed unexpectedly (xpass): known"),
        ("test_skipped", "no card"),
        ("test_module.py", "not here"),
        ("test_broken.py", "No module named 'nothing_here_4711'"),
        # the executors stay off the tests' path
        ("test_path", "No module named 'pytest_executor'"),
    ):
        assert phrase in all_reports[name]["message"], all_reports[name]
    assert [failure["count"] for failure in both["failures"]] == [1, 1]
    measurements = str(all_reports["test_numbers"]["measurements"])
    assert measurements == "{'speed': 2.5, 'odd': nan, 'count': 3.0}"
    failure = all_reports["test_parts"]["failures"][0]  # each subtest is counted
    assert (failure["expression"], failure["count"]) == ("assert number == 1", 2)
    assert len(str(all_reports["test_loud"])) < 2000  # of 50 megabytes


def test_texts_hold_nothing_that_a_database_refuses(all_reports: dict[str, dict[str, Any]]) -> None:
    (report,) = reports_of([all_reports["test_texts"]])
    assert report.message.startswith("ValueError: a\ufffdb?")
    assert report.measurements == {"?": 1.0}
    assert "\0" not in str(report.failures)


def test_a_failure_that_a_plug_in_runs_again_stays_a_failure(project: Project) -> None:
    # pytest-rerunfailures does this: it logs the failed call as "rerun", then runs the test once
    # more
    project.write(
        conftest="""
        import pytest
        from _pytest.runner import runtestprotocol
        def pytest_runtest_protocol(item, nextitem):
            item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
            for attempt in (1, 2):
                for report in runtestprotocol(item, nextitem=nextitem, log=False):
                    if attempt == 1 and report.failed:
                        report.outcome = "rerun"
                    item.ihook.pytest_runtest_logreport(report=report)
                    if report.outcome == "rerun" and item.name == "test_breaks_off":
                        break
            return True
        """,
        test_a="""
        import itertools
        runs = itertools.count()
        def test_whole(): assert next(runs)
        breaks = itertools.count()
        def test_breaks_off(): assert next(breaks)
        """,
    )
    whole, breaks_off = project.reports({}, {})
    assert (whole["outcome"], breaks_off["outcome"]) == ("failed", "failed")
    assert whole["message"].startswith("failed, then run again: ")


def test_a_crash_keeps_what_finished_names_the_test_and_says_what_was_not_run(
    project: Project,
) -> None:
    tests = "def test_first(): pass\ndef test_dies(): os.abort()\ndef test_last(): pass\n"
    project.write(test_crash=f"import os\n{tests}")
    first, dies, last = project.reports({}, {"paths": ["test_crash.py"]})
    assert first["outcome"] == "passed"
    ended = "the process of the tests was ended by SIGABRT in the middle of this test"
    assert (dies["outcome"], dies["message"]) == ("crash", ended)
    not_run = "not run: the process was ended by SIGABRT in test_crash.py::test_dies before"
    assert (last["outcome"], last["message"]) == ("skipped", not_run)


def test_a_disk_that_is_full_blames_no_test(project: Project) -> None:
    full = "import resource\ndef test_fills(): resource.setrlimit(resource.RLIMIT_FSIZE, (1, 1))\n"
    project.write(test_full=f"{full}def test_last(): pass\n")
    reports = project.reports({}, {"paths": ["test_full.py"]})
    assert [report["outcome"] for report in reports] == ["error", "skipped", "error"], reports
    assert "pytest broke" in reports[-1]["message"]
    assert "File too large" in reports[-1]["message"]


LATE = "import atexit\natexit.register(os.abort)\ndef test_fine(): pass\n"
SLOW = "@pytest.mark.timeout(0.5, method='thread')\ndef test_slow(): time.sleep(60)\n"


@pytest.mark.parametrize(
    ("text", "command", "expected"),
    [
        ("def test_quits(): os._exit(0)\n", (), {"test_a.py::test_quits": "crash"}),
        (LATE, (), {"test_a.py::test_fine": "passed", "(exit)": "crash"}),
        ("os.abort()\n", (), {"(collection)": "crash"}),
        (SLOW, ("-p", "pytest_timeout"), {"test_a.py::test_slow": "hang"}),
    ],
    ids=["with status 0", "after the last test", "while collecting", "by pytest-timeout"],
)
def test_a_process_that_ends_itself_is_a_crash_or_a_hang(
    project: Project, text: str, command: tuple[str, ...], expected: dict[str, str]
) -> None:
    project.write(test_a=f"import os, time, pytest\n{text}")
    with project.running({"all": {}}, command) as executor:
        assert outcomes(executor.report({"suite": "all"}, iteration=0)) == expected


@pytest.mark.slow
def test_a_hang_is_ended_placed_and_leaves_no_process(project: Project) -> None:
    # collected and started within 6 s, even where the machine is busy; the helper process leaves
    # the group and ignores TERM
    project.write(
        test_hang="""
        import subprocess, sys, time
        def wait_for_the_kernel():
            while True: time.sleep(60)
        def test_first(): pass
        def test_stuck():
            code = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
            helper = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
            open("helper", "w").write(str(helper.pid))
            wait_for_the_kernel()
        def test_last(): pass
        """
    )
    first, stuck, last = project.reports({}, {"timeout_s": scaled(6)})
    assert (first["outcome"], stuck["outcome"], last["outcome"]) == ("passed", "hang", "skipped")
    place = "it hung at test_hang.py:4 in wait_for_the_kernel"
    assert stuck["message"] == f"no end within {scaled(6):g} s; {place}"
    assert last["message"] == "not run: test_hang.py::test_stuck hung before"
    assert not Path(f"/proc/{(project.root / 'helper').read_text()}/exe").exists()


COMPARES = """
    import numpy as np
    SHAPE = (2, 3, 32)
    def arrays():
        rows = {"x": np.ones(SHAPE), "dy": np.zeros(SHAPE)}
        return {**rows, "gamma": np.ones(32), "dx": np.zeros(SHAPE)}
    def test_fixture(gonogo):
        raw = {"x": np.full(SHAPE, 1 / 3)}
        assert gonogo.compare("layernorm_bw", **arrays(), tolerance={"atol": 0.5}, name="first",
                              arithmetic="fp32", raw=raw) is None
    def test_module():
        import gonogo
        statistics = {"mean": np.ones((2, 3)), "rstd": np.ones((2, 3))}
        gonogo.compare(kernel="layernorm_bw", **statistics, **arrays())
        gonogo.compare(kernel="layernorm_bw", shape=[6, 32], epsilon=1e-5, **arrays())
        assert 0
    def test_typo(gonogo): gonogo.compare("layernorm_bw", dX=np.ones(3), **arrays())
    """


OWN_STATISTICS = {"numerics": {"statistics": "own"}}


def test_arrays_are_handed_over_as_files_with_the_test_s_fields(project: Project) -> None:
    project.write(test_c=COMPARES, test_none="")
    suites = {"all": {"paths": ["test_c.py"]}, "none": {"paths": ["test_none.py"]}}
    with project.running(suites) as executor:
        fixture, module, typo = executor.report({"suite": "all"}, iteration=0)
        outcomes_in_order = [one["outcome"] for one in (fixture, module, typo)]
        assert outcomes_in_order == ["passed", "failed", "failed"]
        assert typo["dumps"] == []
        assert "dX is neither a tensor" in typo["message"]
        (dump,) = fixture["dumps"]
        named = {"kernel": "layernorm_bw", "tolerance": {"atol": 0.5}, "shape": [2, 3, 32]}
        assert (dump["kernel"], dump["name"]) == ("layernorm_bw", "first")
        assert (dump["fields"], dump["arithmetic"]) == (named | OWN_STATISTICS, "fp32")
        x, raw = (np.load(dump[of]["x"], allow_pickle=False) for of in ("tensors", "raw"))
        assert (x.dtype, x.shape) == (np.float32, (2, 3, 32))
        assert (raw.dtype, float(raw[0, 0, 0])) == (np.float64, 1 / 3)
        with_statistics, without = (one["fields"] for one in module["dumps"])
        assert "numerics" not in with_statistics
        computed = {"kernel": "layernorm_bw", "epsilon": 1e-5, "shape": [6, 32]}
        assert without == computed | OWN_STATISTICS
        executor.report({"suite": "none"}, iteration=1)
        assert Path(dump["tensors"]["x"]).exists()  # the worker may still be reading it
        executor.report({"suite": "none"}, iteration=2)
        assert not Path(dump["tensors"]["x"]).exists()


def test_a_build_without_suites_runs_all_below_its_root_with_its_own_arguments(
    project: Project,
) -> None:
    marked = "import pytest\n@pytest.mark.fast\ndef test_a(): pass\ndef test_b(): pass\n"
    project.write(test_a=marked, ops__test_c="def test_c(): pass\n")
    with project.running({}, ("-m", "fast", "-W", "ignore")) as executor:
        reports = executor.report({"suite": None}, iteration=0)
    assert outcomes(reports) == {"test_a.py::test_a": "passed"}
    with project.running({}, paths=["ops"]) as executor:
        assert outcomes(executor.report({}, iteration=0)) == {"ops/test_c.py::test_c": "passed"}


STRANGE = """
    import numpy as np
    def test_a(gonogo, gonogo_seed):
        assert gonogo_seed == gonogo.seed == 7
        gonogo.compare(np.array([1.0, 2.5]), [1.0, 2.0], atol=1.0, name="dx")
"""


def test_a_stranger_s_package_named_gonogo_is_set_aside(project: Project) -> None:
    project.write(gonogo="raise RuntimeError('not yours')\n", service__helper="")
    project.write(tests__test_a=STRANGE)
    (report,) = project.reports({}, {"paths": ["tests"]}, seed=7)
    assert report["name"] == "tests/test_a.py::test_a"
    assert report["outcome"] == "passed", report["message"]
    # without a spec, the worker can't judge the arrays: the report has the test's numbers
    numbers = {"max_abs": 0.5, "tolerance_ratio": 0.5, "pcc_deficit": 0.0}
    numbers["tolerance_roundings"] = (2**53 + 2**52) / 2  # half an ulp is 2^-53 at 1, 2^-52 at 2
    expected = {f"dx.{name}": number for name, number in numbers.items()}
    assert report["measurements"] == pytest.approx(expected)


def test_a_project_that_forbids_every_warning_runs(project: Project) -> None:
    (project.root / "pytest.ini").write_text(
        "[pytest]\naddopts = --strict-markers --strict-config -W error\nfilterwarnings = error\n"
    )
    project.write(test_a="def test_a(gonogo): gonogo.measure('n', 1)\n")
    assert outcomes(project.reports({}, {})) == {"test_a.py::test_a": "passed"}


def test_tests_spread_over_processes_are_told_once(project: Project) -> None:
    pytest.importorskip("xdist")
    lines = (f"def test_{number}(gonogo): gonogo.measure('n', {number})\n" for number in range(4))
    project.write(test_a="".join(lines))
    with project.running({"all": {}}, ("-p", "xdist.plugin", "-n", "2")) as executor:
        reports = executor.report({"suite": "all"}, iteration=0)
    assert [(report["name"], report["outcome"], report["measurements"]) for report in reports] == [
        (f"test_a.py::test_{number}", "passed", {"n": float(number)}) for number in range(4)
    ]

"""pytest plug-in: `pytest -p gonogo.pytest_plugin`. Gives the fixture `gonogo`, and records what each test did, line by line, in a file.

Needs the standard library, pytest 7 or newer and gonogo.handover only: both files run in other people's interpreters (Python 3.10 or
newer). The lines are read by workers/executors/child/pytest_executor.py even if this process dies in the middle of a test.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from gonogo import handover

FORMAT = 1
"""Of the lines. The executor looks for exactly this line to see whether an installed gonogo speaks as it does."""
MAX_MESSAGE = 4000
MAX_EXPRESSION = 300
HERE = os.path.join(os.getcwd(), "")
"""Where pytest was started: places in the tests are told from here, wherever a test goes meanwhile."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the executor, and the one for people."""
    group = parser.getgroup("gonogo", "GoNoGo")
    group.addoption("--gonogo-report", metavar="FILE", help="append a line of JSON for everything that happens to a test")
    chosen = "run only the node ids in this JSON list, or what lies below them"
    group.addoption("--gonogo-only", metavar="FILE", action="append", default=[], help=chosen)
    group.addoption("--gonogo-shuffle", metavar="SEED", type=int, help="run in a random order: files, then the tests of each file")
    group.addoption(
        "--gonogo-compare",
        choices=handover.MODES,
        default="fail",
        help="what gonogo.compare does with arrays that are no pass, when they are judged on the spot",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Start recording; with pytest-xdist only in the process that hears of all tests."""
    handover.set_mode(config.getoption("--gonogo-compare"))
    for only in config.getoption("--gonogo-only"):
        config.pluginmanager.register(Chooser(map(str, json.loads(Path(only).read_text("utf-8")))))
    report = config.getoption("--gonogo-report")
    if report and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(Path(report)), "gonogo-recorder")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The order that a seed gives: the same for ever, and for two tests of a file the same whatever other tests there are."""
    seed = config.getoption("--gonogo-shuffle")
    if seed is not None:
        items.sort(key=lambda item: (_key(seed, item.nodeid.partition("::")[0]), _key(seed, item.nodeid)))


def _key(seed: int, name: str) -> bytes:
    return hashlib.sha256(f"{seed}:{name}".encode("utf-8", "surrogatepass")).digest()


class Gonogo:
    """What a test gets as `gonogo`: its seed, `measure` for a number worth keeping, `compare` for arrays worth judging."""

    def __init__(self, properties: list[tuple[str, object]]) -> None:
        self._properties = properties
        self.seed = int(os.environ.get("GONOGO_SEED") or os.environ.get("GONOGO_ITERATION") or 0)
        """For the test's random data: the job's seed where it is controlled, else the number of the iteration."""

    def measure(self, name: str, value: float) -> None:
        """Keep a number with the outcome of this test. Raises TypeError or ValueError for what is no number."""
        self._properties.append((str(name), float(value)))

    def compare(self, kernel: str, **given: Any) -> Any:
        """As `gonogo.compare`."""
        return handover.compare(kernel, **given)


@pytest.fixture(name="gonogo")
def gonogo_fixture(request: pytest.FixtureRequest) -> Gonogo:
    """GoNoGo's measurements and comparisons for this test."""
    return Gonogo(request.node.user_properties)


class Chooser:
    """Runs only what was asked for. The ids are compared with those collected and never become paths or options of pytest."""

    def __init__(self, wanted: Iterable[str]) -> None:
        self.wanted = [each.strip().rstrip("/") for each in wanted]
        self.files = [each.partition("::")[0] for each in self.wanted]

    def pytest_ignore_collect(self, collection_path: Path, config: pytest.Config) -> bool | None:
        """Don't even import the files that hold nothing of it."""
        try:
            place = collection_path.relative_to(config.rootpath).as_posix()
        except ValueError:
            return None
        near = any(_below(place, file) or _below(file, place) for file in self.files)
        return None if near or place == "." else True

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out the others."""
        chosen = [item for item in items if any(self._holds(wanted, item.nodeid) for wanted in self.wanted)]
        if len(chosen) < len(items):
            kept = set(chosen)
            config.hook.pytest_deselected(items=[item for item in items if item not in kept])
            items[:] = chosen

    @staticmethod
    def _holds(wanted: str, nodeid: str) -> bool:
        return nodeid == wanted or nodeid.startswith((f"{wanted}::", f"{wanted}[", f"{wanted}/"))


def _below(place: str, folder: str) -> bool:
    return place == folder or place.startswith(f"{folder}/") or folder in ("", ".")


class Recorder:
    """Appends a line per event: collected, start, done, uncollected, problem, end. Each line is one write, so a crash cuts none."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._pid = os.getpid()
        self._open: dict[str, Outcome] = {}

    def write(self, event: str, **values: Any) -> None:
        """One line; a child that a test forked says nothing."""
        if os.getpid() == self._pid:
            os.write(self._file, json.dumps({"event": event, **values}).encode() + b"\n")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that can't be imported, or that skips itself as a whole."""
        if report.failed:
            self.write("uncollected", test=report.nodeid, outcome="error", message=str(report.longreprtext)[-MAX_MESSAGE:])
        elif report.skipped:
            self.write("uncollected", test=report.nodeid, outcome="skipped", message=_reason(report))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """The tests, in the order in which they will run."""
        if getattr(session, "items", None):
            self.write("collected", tests=[item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """The same when pytest-xdist collects in processes of its own; every one of them has all tests."""
        self.write("collected", tests=list(ids))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """From here on a test is the running one."""
        self._open[nodeid] = Outcome()
        self.write("start", test=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Setup, call and teardown are folded into one outcome; a test that a plug-in runs again has several."""
        outcome = self._open.setdefault(report.nodeid, Outcome())
        outcome.add(report)
        if report.when == "teardown":
            self.write("done", test=report.nodeid, **outcome.to_json())
            del self._open[report.nodeid]

    def pytest_internalerror(self, excrepr: object) -> None:
        """pytest or a plug-in broke."""
        self.write("problem", message=f"internal error: {excrepr}"[-MAX_MESSAGE:])

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """A test, or a hook, ended the whole run (pytest.exit)."""
        self.write("problem", message=f"the run was ended: {excinfo.exconly()}"[:MAX_MESSAGE])

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Everything that follows is no test's."""
        self.write("end", status=int(exitstatus))


class Outcome:
    """What setup, call and teardown of one test come to.

    failed: the call failed (or a subtest, a strict xfail that passed, a run that a plug-in repeats). error: setup or teardown did, or
    both phases around a call that didn't fail. skipped: also an expected failure (xfail), which is never green. passed: also an
    unexpected pass (xpass), with a message.
    """

    def __init__(self) -> None:
        self.outcome = "passed"
        self.message = ""
        self.duration_ms: float | None = None
        self.failures: dict[str, dict[str, Any]] = {}
        self.measurements: dict[str, float] = {}

    def add(self, report: pytest.TestReport) -> None:
        """Fold one phase in."""
        part_of_a_test = hasattr(report, "context")  # a subtest: its time is in that of the call
        if report.when == "call" and not part_of_a_test:
            self.duration_ms = (self.duration_ms or 0.0) + report.duration * 1e3
        again = str(report.outcome) == "rerun"  # pytest-rerunfailures: a failure that is tried once more
        if report.failed or again:
            self._failed(report, "failed" if report.when == "call" else "error", again)
        elif report.skipped and not part_of_a_test and self.outcome == "passed":
            expected = getattr(report, "wasxfail", None)
            self.outcome = "skipped"
            self.message = _reason(report) if expected is None else f"failed as expected (xfail): {expected}"
        elif report.when == "call" and hasattr(report, "wasxfail") and not report.skipped:
            self.message = f"passed unexpectedly (xpass): {report.wasxfail}"
        for name, value in report.user_properties:
            number = _number(value)
            if number is not None:
                self.measurements[str(name)] = number

    def _failed(self, report: pytest.TestReport, outcome: str, again: bool) -> None:
        expression, message = _failure(report)
        entry = self.failures.setdefault(expression, {"expression": expression, "count": 0, "message": message})
        entry["count"] += 1
        if self.outcome not in ("failed", "error"):
            prefix = "failed, then run again: " if again else "" if report.when == "call" else f"in {report.when}: "
            self.outcome, self.message = outcome, (prefix + message)[:MAX_MESSAGE]

    def to_json(self) -> dict[str, Any]:
        """The part of a `done` line that says how it went; measurements may be NaN or Infinity, which Python's JSON has."""
        return {
            "outcome": self.outcome,
            "message": self.message,
            "duration_ms": self.duration_ms,
            "failures": list(self.failures.values()),
            "measurements": self.measurements,
        }


def _failure(report: pytest.TestReport) -> tuple[str, str]:
    """The source line that failed (else the first line of the message), and the message with its place."""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is None:
        text = str(report.longreprtext)
        return text.partition("\n")[0][:MAX_EXPRESSION], text[:MAX_MESSAGE]
    traceback = getattr(report.longrepr, "reprtraceback", None)
    entries = getattr(traceback, "reprentries", None) or [None]
    source = [line[1:].strip() for line in getattr(entries[-1], "lines", ()) if line.startswith(">")]
    first = source[-1] if source else str(crash.message).partition("\n")[0]
    return first[:MAX_EXPRESSION], f"{crash.message}\n{str(crash.path).removeprefix(HERE)}:{crash.lineno}"[:MAX_MESSAGE]


def _reason(report: pytest.CollectReport | pytest.TestReport) -> str:
    """Why something was skipped."""
    where = report.longrepr
    return str(where[2] if isinstance(where, tuple) else where).removeprefix("Skipped: ")[:MAX_MESSAGE]


def _number(value: object) -> float | None:
    """A number that a test recorded, NumPy's among them; None for texts and truths."""
    if isinstance(value, (bool, str, bytes)) or not hasattr(value, "__float__"):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return None

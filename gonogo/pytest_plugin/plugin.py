"""The pytest plug-in, which pytest loads if gonogo is installed.

It provides the fixtures `gonogo`, `gonogo_seed` and `exact_inputs`, and records what tests compare.
It needs the standard library, pytest 7 or newer and the few modules in PLUGIN_FILES of
workers/gonogo_workers/executors/child/pytest_executor.py, which run in other people's interpreters
(Python 3.10 or newer). Under that executor a line for each event goes to a file, which is read even
if this process dies in the middle of a test; elsewhere collecting.py stores the numbers or sends
them to a server. `exact_inputs` needs all of gonogo.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from gonogo.public import dropin, handover
from gonogo.pytest_plugin import dumps
from gonogo.pytest_plugin.lines import Chooser, Measurer, Recorder

FORMAT = 1
"""The version of the lines. The executor searches for exactly this line to see whether an
installed gonogo writes the same lines."""
SEEDS = 3
LOCAL_FOLDER = ".gonogo"
OFF = "off"
_ADDRESS = re.compile(r"[\w.-]+:\d+(/.*)?|(?!https?:)\w+://.*")
"""A host with a port, or a scheme other than a server's: no folder that anybody would want."""
SEEDS_MARK = "gonogo_seeds"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the executor and of users."""
    group = parser.getgroup("gonogo", "GoNoGo")
    group.addoption(
        "--gonogo-report",
        metavar="FILE",
        help="append a line of JSON for everything that happens to a test",
    )
    chosen = "run only the node ids in this JSON list, and everything below them"
    group.addoption("--gonogo-only", metavar="FILE", action="append", default=[], help=chosen)
    group.addoption(
        "--gonogo-shuffle",
        metavar="SEED",
        type=int,
        help="run in a random order: files, then the tests of each file",
    )
    group.addoption(
        "--gonogo-compare",
        choices=handover.MODES,
        default=handover.MODES[0],
        help="what gonogo.compare(kernel, ...) does if arrays that it judges itself aren't a pass",
    )
    where = (
        f"report the run to this server (http...), or to a file in this folder; '{OFF}': nowhere;"
        f" default: {LOCAL_FOLDER} if a test compares"
    )
    group.addoption("--gonogo", metavar="WHERE", help=where)
    group.addoption(
        "--gonogo-strict",
        action="store_true",
        help="fail tests whose pass is hollow: green, and rounding doesn't explain the error",
    )
    group.addoption(
        "--gonogo-capture",
        action="store_true",
        help="record the comparisons of tests that don't use gonogo.compare, such as"
        " numpy.testing.assert_allclose and assert_with_pcc; no outcome changes",
    )
    group.addoption(
        "--gonogo-seeds",
        metavar="N",
        type=_seeds,
        default=SEEDS,
        help=f"seeds of tests that take gonogo_seed; default {SEEDS}",
    )
    group.addoption(
        "--gonogo-seed-start",
        metavar="SEED",
        type=_count,
        default=0,
        help="the first of them; default 0",
    )
    group.addoption(
        "--gonogo-suite",
        metavar="NAME",
        help="the name of the history; default: the CI's repository, else the root folder's",
    )
    group.addoption(
        "--gonogo-build", metavar="NAME", help="the build that is tested; default: the commit"
    )
    group.addoption(
        "--gonogo-label",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a label of the run; repeatable",
    )


def _seeds(text: str) -> int:
    """Return how many seeds: none would skip every test that takes one."""
    value = _count(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1; got {text!r}")
    return value


def _count(text: str) -> int:
    value = int(text)
    if not 0 <= value < 2**53:
        raise ValueError(text)
    return value


def pytest_configure(config: pytest.Config) -> None:
    """Start recording; with pytest-xdist only in the process that receives all reports."""
    mark = (
        f"{SEEDS_MARK}(count, start=0): the seeds of a test that takes gonogo_seed; overrides"
        " --gonogo-seeds"
    )
    config.addinivalue_line("markers", mark)
    handover.set_mode(config.getoption("--gonogo-compare"))
    # pytest may run again in this process
    config.add_cleanup(lambda: handover.set_mode(handover.MODES[0]))
    for only in config.getoption("--gonogo-only"):
        config.pluginmanager.register(Chooser(map(str, json.loads(Path(only).read_text("utf-8")))))
    report = config.getoption("--gonogo-report")
    if report and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(Path(report)), "gonogo-recorder")
    if config.getoption("--gonogo-capture"):
        from gonogo.pytest_plugin import capturing

        config.pluginmanager.register(capturing.Capturing(config), "gonogo-capturing")
    if dumps.under_worker():
        config.add_cleanup(dumps.take())
        config.pluginmanager.register(Measurer(), "gonogo-measurer")
    elif not config.getoption("collectonly"):
        _report(config)


def _report(config: pytest.Config) -> None:
    """Register the gatherer where tests run, and the collector where all reports arrive.

    Raises UsageError.
    """
    where = config.getoption("--gonogo")
    from gonogo.pytest_plugin import gathering

    config.pluginmanager.register(
        gathering.Gatherer(config.getoption("--gonogo-strict")), "gonogo-gatherer"
    )
    if hasattr(config, "workerinput"):
        return
    from gonogo.pytest_plugin import collecting, delivery, surroundings

    labels = {}
    for text in config.getoption("--gonogo-label"):
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise pytest.UsageError(f"--gonogo-label must be NAME=VALUE; got {text!r}")
        labels[name] = value
    suite, build = config.getoption("--gonogo-suite"), config.getoption("--gonogo-build")
    if where is not None and _ADDRESS.fullmatch(where):
        raise pytest.UsageError(
            f"--gonogo: {where!r} would be a folder; a server's address begins with http:// or "
            f"https://, such as http://{where}"
        )
    folder = config.invocation_params.dir
    is_named = where is not None and where not in ("", OFF)
    if is_named and os.path.isfile(folder / where.partition("::")[0]):  # a test, most likely
        raise pytest.UsageError(f"--gonogo: {where!r} is a file; it takes a server or a folder")
    to: str | None = str(folder / where if where else config.rootpath / LOCAL_FOLDER)
    if where == OFF:
        to = None
    elif where is not None and delivery.is_server(where):
        to = where
    collector = collecting.Collector(
        lambda: surroundings.header(config.rootpath, suite, build, labels),
        root=config.rootpath,
        to=to,
        requested=where not in (None, OFF),
        strict=config.getoption("--gonogo-strict"),
    )
    config.pluginmanager.register(collector, "gonogo-collector")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that uses `gonogo_seed` once for each seed.

    Under a worker it runs once, with the job's seed, and its name stays the same.
    """
    if "gonogo_seed" not in metafunc.fixturenames or dumps.under_worker():
        return
    marks = metafunc.definition.iter_markers("parametrize")
    if any("gonogo_seed" in _argnames(mark) for mark in marks):
        return
    marker = metafunc.definition.get_closest_marker(SEEDS_MARK)
    if marker is not None:
        seeds = _marked(*marker.args, **marker.kwargs)
    else:
        start = metafunc.config.getoption("--gonogo-seed-start")
        seeds = range(start, start + metafunc.config.getoption("--gonogo-seeds"))
    metafunc.parametrize("gonogo_seed", seeds, ids=[f"seed{seed}" for seed in seeds], indirect=True)


def _marked(count: int, start: int = 0) -> range:
    return range(start, start + count)


def _argnames(mark: pytest.Mark) -> list[str]:
    names = mark.args[0] if mark.args else mark.kwargs.get("argnames", ())
    return [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sort the tests by the shuffle seed.

    A seed always gives the same order, and the order of two tests of a file doesn't depend on other
    tests.
    """
    seed = config.getoption("--gonogo-shuffle")

    def key(name: str) -> bytes:
        return hashlib.sha256(f"{seed}:{name}".encode("utf-8", "surrogatepass")).digest()

    if seed is not None:
        items.sort(key=lambda item: (key(item.nodeid.partition("::")[0]), key(item.nodeid)))


class Gonogo:
    """The object that a test gets as `gonogo`.

    It has the test's seed, `measure` for numbers, and `compare` for arrays.
    """

    def __init__(self, properties: list[tuple[str, object]], seed: int) -> None:
        self._properties = properties
        self.seed = seed
        """The seed for the test's random data: that of `gonogo_seed`; under a worker the job's
        seed, or the number of the iteration."""

    def measure(self, name: str, value: float) -> None:
        """Store a number with the outcome of this test.

        Raises TypeError or ValueError if it isn't a number.
        """
        self._properties.append((str(name), float(value)))

    def compare(self, *given: Any, **named: Any) -> Any:
        """Compare arrays; see `gonogo.compare`."""
        __tracebackhide__ = True
        return dropin.compare(*given, **named)


@pytest.fixture(name="gonogo")
def gonogo_fixture(request: pytest.FixtureRequest) -> Gonogo:
    """Return GoNoGo's measurements and comparisons for this test."""
    callspec = getattr(request.node, "callspec", None)
    seed = callspec.params.get("gonogo_seed") if callspec is not None else None
    return Gonogo(request.node.user_properties, _seed_of_worker() if seed is None else seed)


@pytest.fixture
def gonogo_seed(request: pytest.FixtureRequest) -> int:
    """Return the seed for a test's random data; the test runs with each of --gonogo-seeds."""
    return int(getattr(request, "param", _seed_of_worker()))


@pytest.fixture
def exact_inputs(gonogo: Gonogo) -> Any:
    """Return a function that makes exact inputs with this test's seed; see docs/exact.md."""
    from gonogo.pytest_plugin.exact import draw

    return functools.partial(draw, gonogo.seed)


def _seed_of_worker() -> int:
    return int(os.environ.get("GONOGO_SEED") or os.environ.get("GONOGO_ITERATION") or 0)

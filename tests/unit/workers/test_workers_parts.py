"""The worker's pure parts: plug-in entries, build meanings, chunks from untrusted JSON, rows, ranks
and batches."""

from __future__ import annotations

import math
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from chunk_bodies import BODY, parse
from gonogo.errors import FieldError, JobError
from gonogo.pytest_plugin.lines import Outcome
from gonogo.spec.test_spec import TestSpec
from gonogo_service.results.batch import Batch
from gonogo_workers.attempts.attempt import Attempt
from gonogo_workers.attempts.context import DeviceContext, Vitals
from gonogo_workers.devices.discovery import Device
from gonogo_workers.executors import host, registry
from gonogo_workers.executors.base import KernelError, check_outputs, output_shapes, shaped_inputs
from gonogo_workers.executors.builds_file import ResolvedBuild
from gonogo_workers.executors.log import ChildLog
from gonogo_workers.messages import batches as batches_module
from gonogo_workers.messages import rows
from gonogo_workers.messages.batches import Batches
from gonogo_workers.reports import dumps
from gonogo_workers.reports.exchange import read_reports


def test_a_kernel_s_link_is_not_followed(tmp_path: Path) -> None:
    private = tmp_path / "secret.json"
    private.write_text('[{"name": "secret", "outcome": "passed"}]')
    np.save(tmp_path / "private.npy", np.zeros(3, np.float32))
    link, fifo = tmp_path / "reports.json", tmp_path / "fifo"
    link.symlink_to(private)
    os.mkfifo(fifo)
    for place in (link, fifo, tmp_path):
        with pytest.raises(JobError, match="can't be read"):
            read_reports(place)
    assert private.exists()
    link.unlink()
    link.symlink_to(tmp_path / "private.npy")
    with pytest.raises(OSError, match=r"symbolic links|regular file"):
        dumps.load(str(link), most=10)


def test_plug_ins_are_read_from_their_variable() -> None:
    plug_ins = registry.parse("one=pkg.mod:Factory@/opt/a b/bin/python, two=mod:make")
    assert plug_ins["one"] == registry.ExecutorSpec(
        "one", "pkg.mod", "Factory", "/opt/a b/bin/python"
    )
    assert plug_ins["two"].python is None
    assert registry.parse("") == {}


@pytest.mark.parametrize(
    "text",
    [
        "one",
        "one=mod",
        "one=mod:",
        "One=mod:F",
        "one=mod.:F",
        "a=m:F,a=m:G",
        "emulator=m:F",
        "torch=m:F",
        "one=m:F@",
    ],
)
def test_a_plug_in_entry_that_makes_no_sense_is_named(text: str) -> None:
    with pytest.raises(FieldError, match="GONOGO_EXECUTORS"):
        registry.parse(text)


def test_an_unknown_executor_is_answered_with_those_that_there_are() -> None:
    with pytest.raises(FieldError, match=r"emulator, .*mine"):
        registry.find("theirs", "mine=m:F")


def test_a_worker_of_all_serves_torch_where_the_builds_file_speaks_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registry, "NEEDS", {"torch": "no_such_package"})
    names = registry.known("mine=m:F")
    assert registry.ready(names, ()) == ["emulator", "mine"]
    assert registry.ready(names, ("torch", "other")) == ["emulator", "torch", "mine"]
    monkeypatch.setattr(registry, "NEEDS", {"torch": "json"})
    assert registry.ready(names, ()) == ["emulator", "torch", "mine"]


def test_a_chunk_is_read_with_its_defaults() -> None:
    chunk = parse()
    assert chunk.work == ((0, 0), (7, 1))
    assert (chunk.limit_s(first=True), parse(seed_deadline_s=2).limit_s(first=True)) == (600.0, 2)
    two = parse(seed_deadline_s=2, first_seed_deadline_s=9)
    assert (two.limit_s(first=True), two.limit_s(first=False)) == (9, 2)
    assert (chunk.seed_deadline_s, chunk.evidence_first, chunk.evidence_worst, chunk.before) == (
        600.0,
        True,
        1,
        (),
    )
    grouped = parse(
        context={"name": "after-fw", "before": [{"kernel": "layernorm_fw", "shape": [4, 64]}]},
        seed_deadline_s=2,
    )
    assert grouped.context == "after-fw"
    assert [test.kernel for test in grouped.before] == ["layernorm_fw"]


@pytest.mark.parametrize(
    "changes",
    [
        {"attempt": ""},
        {"work": []},
        {"work": [[0]]},
        {"work": [[-1, 0]]},
        {"work": [[2**53, 0]]},
        {"work": "all"},
        {"target": None},
        {"target": {}},
        {"build": 3},
        {"test": {"kernel": "softmx", "shape": [1]}},
        {"test": {"kernel": "layernorm_bw", "shape": [2**21]}},
        {"context": "grouped"},
        {"context": {"name": "x", "before": [{}]}},
        {"seed_deadline_s": -1},
        {"artifacts": {"worst": 1000}},
    ],
)
def test_a_chunk_with_a_wrong_field_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(FieldError):
        parse(**changes)


def test_executors_see_tensors_in_the_tests_shape() -> None:
    test = TestSpec.parse(BODY["test"])
    flat = {
        "x": np.ones((6, 64)),
        "dy": np.ones((6, 64)),
        "gamma": np.ones(64),
        "mean": np.ones(6),
        "rstd": np.ones(6),
    }
    shaped = shaped_inputs(test, flat)
    assert {name: array.shape for name, array in shaped.items()} == {
        "x": (2, 3, 64),
        "dy": (2, 3, 64),
        "gamma": (64,),
        "mean": (2, 3),
        "rstd": (2, 3),
    }
    assert all(array.dtype == np.float32 and array.flags.c_contiguous for array in shaped.values())
    assert output_shapes(test) == {"dx": (2, 3, 64), "dgamma": (64,), "dbeta": (64,)}
    assert output_shapes(test, ("dx",)) == {"dx": (2, 3, 64)}


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ([], "list"),
        ({}, "missing"),
        ({"dx": [1.0]}, "is a list"),
        ({"dx": np.zeros(3)}, "float64"),
        ({"dx": np.zeros(4, np.float32)}, r"\[4\]; expected float32 \[3\]"),
    ],
)
def test_outputs_that_cannot_be_judged_are_named(outputs: Any, message: str) -> None:
    with pytest.raises(KernelError, match=message):
        check_outputs(outputs, {"dx": (3,)})


def test_rows_are_plain_json_with_null_for_what_is_not_finite() -> None:
    value = {
        "a": np.float32(1.5),
        "b": [np.int64(3), math.inf],
        "c": float("nan"),
        "d": np.array([1.0, np.nan]),
        "e": True,
        "f": None,
    }
    assert rows.plain(value) == {
        "a": 1.5,
        "b": [3, None],
        "c": None,
        "d": [1.0, None],
        "e": True,
        "f": None,
    }
    with pytest.raises(TypeError):
        rows.plain(object())


def row(verdict: str, **ratios: float | None) -> rows.Row:
    """A row with rounding ratios per output; None stands for NaN or Inf in the output."""
    outputs = {
        name: {"verdict": verdict, "rounding_ratio": ratio, "nonfinite": int(ratio is None)}
        for name, ratio in ratios.items()
    }
    return {"seed": 0, "repeat": 0, "verdict": verdict, "outputs": outputs}


def test_the_worst_seed_has_the_worst_verdict_then_the_largest_error() -> None:
    ordered = [
        row("hang"),
        row("pass", dx=0.9),
        row("pass", dx=0.95, dbeta=0.1),
        row("suspect", dx=5.0),
        row("pass_by_tolerance", dx=12.0),
        row("pass_by_tolerance", dx=150.0),
        row("pass_by_tolerance", dx=None),
    ]
    assert sorted([ordered[at] for at in (3, 5, 0, 4, 2, 1, 6)], key=rows.rank) == ordered


class Box:
    """A sender that collects the posted messages."""

    def __init__(self) -> None:
        self.posts: list[dict[str, Any]] = []

    def post(self, method: str, path: str, body: dict[str, Any]) -> None:
        """Collect a request."""
        assert method == "PUT"
        self.posts.append({**body, "path": path})


def errored(seed: int) -> rows.Row:
    """Return the row of a seed without numbers."""
    return rows.failed((seed, 0), rows.Place("host/chip:0", "a" * 32, seed), 1.5, "error", "why")


WRONG_ROWS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"outcome": "passed", "verdict": "not_judged", "hash": 10**30}, "the report of 'S.t'"),
    ({"outcome": "splendid", "verdict": "not_judged"}, "splendid"),
    ({"outcome": "passed", "verdict": "not_judged", "hash": 10**5000}, "ValueError"),
    ({"outcome": "passed", "verdict": "not_judged", "share": math.nan}, "ValueError"),
    ({"outcome": "passed", "message": "x" * (batches_module.MAX_PART_BYTES + 1)}, "bytes; allowed"),
)


@pytest.mark.parametrize(("entry", "words"), WRONG_ROWS, ids=[words for _, words in WRONG_ROWS])
def test_a_row_that_the_service_would_refuse_is_an_error_of_its_own_seed(
    entry: dict[str, Any], words: str
) -> None:
    """The service refuses a whole message: the seeds beside the wrong one were lost as well."""
    box = Box()
    batches = Batches(box, "a1")  # type: ignore[arg-type]
    batches.add(errored(0))
    batches.add({**errored(1), "verdict": "not_judged", "outputs": {"S.t": entry}})
    batches.add(errored(2))
    batches.flush()
    sent = [row for post in box.posts for row in post["rows"]]
    assert [row["seed"] for row in sent] == [0, 1, 2]
    wrong = sent[1]
    assert (wrong["verdict"], wrong["outputs"], wrong["duration_ms"]) == ("error", {}, 1.5)
    assert wrong["message"].startswith("its results can't be sent: ")
    assert words in wrong["message"]
    for post in box.posts:
        Batch.parse(post).check()


@pytest.mark.parametrize("content", [{"x": math.nan}, {"x": "y" * batches_module.MAX_PART_BYTES}])
def test_an_artifact_that_no_message_can_hold_costs_no_result(content: dict[str, Any]) -> None:
    box = Box()
    batches = Batches(box, "a1")  # type: ignore[arg-type]
    batches.add_artifact({"kind": "log", "seed": 0, "repeat": 0, "output": "", "content": content})
    batches.add(errored(0))
    assert [(len(post["rows"]), post["artifacts"]) for post in box.posts] == [(1, [])]


class Jam(Box):
    """A sender that takes no results."""

    def post(self, method: str, path: str, body: dict[str, Any]) -> None:
        """Collect a request that has no results."""
        if "/results/" in path:
            raise ValueError("too large")
        self.posts.append({**body, "path": path})


def test_results_that_cannot_be_sent_keep_no_attempt_from_its_end(tmp_path: Path) -> None:
    jam, vitals = Jam(), Vitals()
    parts: Any = {name: SimpleNamespace() for name in ("pool", "monitor", "threads", "drawing")}
    parts["pool"].prepare = lambda *_: None
    context = DeviceContext(
        worker="host/emulator:0/1",
        executor="emulator",
        device=Device("emulator", 0, "wormhole", "n150", "host"),
        lock_folder=tmp_path,
        sender=jam,  # type: ignore[arg-type]
        vitals=vitals,
        telemetry=SimpleNamespace(latest=dict),  # type: ignore[arg-type]
        chunk_deadline_s=60.0,
        tt_triage=None,
        **parts,
    )
    resolved = ResolvedBuild(registry.find("emulator"))
    attempt = Attempt(parse(), resolved, context)
    with pytest.raises(ValueError, match="too large"):
        attempt._batches.add(errored(0))
    assert attempt.run() == "error"
    (ended,) = [post for post in jam.posts if post["path"].endswith(":finish")]
    assert (ended["outcome"], ended["sent"], ended["batches"]) == ("error", [], 0)
    assert ended["error"] == "bug in the worker: ValueError: too large"


def test_the_first_row_goes_at_once_and_the_others_together() -> None:
    box = Box()
    batches = Batches(box, "a1")  # type: ignore[arg-type]
    for seed in range(5):
        batches.add(errored(seed))
    assert [len(post["rows"]) for post in box.posts] == [1]
    assert batches.due is not None
    batches.flush()
    assert [len(post["rows"]) for post in box.posts] == [1, 4]
    assert batches.sent == [(seed, 0) for seed in range(5)]
    assert [post["path"][-2:] for post in box.posts] == ["/0", "/1"]
    batches.flush()
    assert len(box.posts) == 2


def test_a_large_batch_does_not_wait() -> None:
    box = Box()
    batches = Batches(box, "a1")  # type: ignore[arg-type]
    for seed in range(40):
        batches.add({**errored(seed), "sentence": "x" * 15_000, "message": "x" * 15_000})
    assert max(len(post["rows"]) for post in box.posts) < 40
    assert len(box.posts) >= 3


def test_the_tail_of_a_log_holds_all_that_was_printed_before_it_is_asked_for() -> None:
    log = ChildLog()
    child = os.dup(log.writer)
    log.start()
    try:
        for number in range(300):
            os.write(child, b"line %d\n" % number)
            assert log.tail().endswith(f"line {number}\n")
    finally:
        os.close(child)
        log.finish()
    assert log.tail().endswith("line 299\n")


class Quarter:
    """An executor that takes a quarter of a second."""

    def __init__(self) -> None:
        self.clock = 10.0

    def run(self, *_: object) -> dict[str, Any]:
        """Run a kernel without outputs."""
        self.clock += 0.25
        return {}

    def report(self, *_: object, **__: object) -> list[Any]:
        """Run a selection without tests."""
        self.clock += 0.25
        return []


def test_durations_are_in_milliseconds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    child, executor = host.Host(), Quarter()
    child.executor = executor
    monkeypatch.setattr(host, "time", SimpleNamespace(perf_counter=lambda: executor.clock))
    monkeypatch.setenv(host.DEADLINE_VARIABLE, "")
    kernel = {"test": {"kernel": "k"}, "inputs": {}, "outputs": {}, "seed": 1}
    tests = {"selection": {}, "iteration": 0, "deadline_s": 9, "file": str(tmp_path / "reports")}
    assert child.run(kernel)["ms"] == child.report({**tests, "seed": 1})["ms"] == 250.0
    outcome = Outcome()
    for when, seconds in (("setup", 9.0), ("call", 0.25), ("teardown", 9.0)):
        usual = {"outcome": "passed", "failed": False, "skipped": False, "user_properties": []}
        phase: Any = SimpleNamespace(when=when, duration=seconds, **usual)
        outcome.add(phase)
    assert outcome.duration_ms == 250.0

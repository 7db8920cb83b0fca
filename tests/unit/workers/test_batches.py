"""The results that a worker sends: which rows go together, which seed comes first, and what no
message can hold costs its own seed only."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chunk_bodies import parse
from gonogo_service.results.batch import Batch
from gonogo_workers.attempts.attempt import Attempt
from gonogo_workers.attempts.context import DeviceContext, Vitals
from gonogo_workers.devices.discovery import Device
from gonogo_workers.executors import registry
from gonogo_workers.executors.builds_file import ResolvedBuild
from gonogo_workers.messages import rows
from gonogo_workers.messages.batches import MAX_PART_BYTES, Batches


class Box:
    """A sender that collects the posted messages."""

    def __init__(self) -> None:
        self.posts: list[dict[str, Any]] = []

    def post(self, method: str, path: str, body: dict[str, Any]) -> None:
        self.posts.append({**body, "path": path, "method": method})


def sending() -> tuple[Box, Batches]:
    box: Any = Box()
    return box, Batches(box, "a1")


def errored(seed: int, **changes: Any) -> rows.Row:
    """The row of a seed without numbers."""
    place = rows.Place("host/chip:0", "a" * 32, seed)
    return {**rows.failed((seed, 0), place, 1.5, "error", "why"), **changes}


def test_the_first_row_goes_at_once_and_the_others_together() -> None:
    box, batches = sending()
    for seed in range(5):
        batches.add(errored(seed))
    assert [len(post["rows"]) for post in box.posts] == [1]
    assert batches.due is not None
    batches.flush()
    assert [(post["method"], post["path"][-2:], len(post["rows"])) for post in box.posts] == [
        ("PUT", "/0", 1),
        ("PUT", "/1", 4),
    ]
    assert batches.sent == [(seed, 0) for seed in range(5)]
    batches.flush()
    assert len(box.posts) == 2


def test_a_large_batch_does_not_wait() -> None:
    box, batches = sending()
    for seed in range(40):
        batches.add(errored(seed, sentence="x" * 15_000, message="x" * 15_000))
    assert max(len(post["rows"]) for post in box.posts) < 40
    assert len(box.posts) >= 3


WRONG_ROWS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"outcome": "passed", "verdict": "not_judged", "hash": 10**30}, "the report of 'S.t'"),
    ({"outcome": "splendid", "verdict": "not_judged"}, "splendid"),
    ({"outcome": "passed", "verdict": "not_judged", "hash": 10**5000}, "ValueError"),
    ({"outcome": "passed", "verdict": "not_judged", "share": math.nan}, "ValueError"),
    ({"outcome": "passed", "message": "x" * (MAX_PART_BYTES + 1)}, "bytes; allowed"),
)


@pytest.mark.parametrize(("entry", "words"), WRONG_ROWS, ids=[words for _, words in WRONG_ROWS])
def test_a_row_that_the_service_would_refuse_is_an_error_of_its_own_seed(
    entry: dict[str, Any], words: str
) -> None:
    """The service refuses a whole message: the seeds beside the wrong one were lost as well."""
    box, batches = sending()
    for seed in range(3):
        batches.add(errored(seed, **({"outputs": {"S.t": entry}} if seed == 1 else {})))
    batches.flush()
    sent = [row for post in box.posts for row in post["rows"]]
    assert [row["seed"] for row in sent] == [0, 1, 2]
    wrong = sent[1]
    assert (wrong["verdict"], wrong["outputs"], wrong["duration_ms"]) == ("error", {}, 1.5)
    assert wrong["message"].startswith("its results can't be sent: ")
    assert words in wrong["message"]
    for post in box.posts:
        Batch.parse(post).check()


@pytest.mark.parametrize("content", [{"x": math.nan}, {"x": "y" * MAX_PART_BYTES}])
def test_an_artifact_that_no_message_can_hold_costs_no_result(content: dict[str, Any]) -> None:
    box, batches = sending()
    batches.add_artifact({"kind": "log", "seed": 0, "repeat": 0, "output": "", "content": content})
    batches.add(errored(0))
    assert [(len(post["rows"]), post["artifacts"]) for post in box.posts] == [(1, [])]


class Jam(Box):
    """A sender that takes no results."""

    def post(self, method: str, path: str, body: dict[str, Any]) -> None:
        if "/results/" in path:
            raise ValueError("too large")
        super().post(method, path, body)


def test_results_that_cannot_be_sent_keep_no_attempt_from_its_end(tmp_path: Path) -> None:
    jam = Jam()
    parts: Any = {name: SimpleNamespace() for name in ("pool", "monitor", "threads", "drawing")}
    parts["pool"].prepare = lambda *_: None
    parts |= {"sender": jam, "telemetry": SimpleNamespace(latest=dict), "tt_triage": None}
    context = DeviceContext(
        worker="host/emulator:0/1",
        executor="emulator",
        device=Device("emulator", 0, "wormhole", "n150", "host"),
        lock_folder=tmp_path,
        vitals=Vitals(),
        chunk_deadline_s=60.0,
        **parts,
    )
    attempt = Attempt(parse(), ResolvedBuild(registry.find("emulator")), context)
    with pytest.raises(ValueError, match="too large"):
        attempt._batches.add(errored(0))
    assert attempt.run() == "error"
    (ended,) = [post for post in jam.posts if post["path"].endswith(":finish")]
    assert (ended["outcome"], ended["sent"], ended["batches"]) == ("error", [], 0)
    assert ended["error"] == "bug in the worker: ValueError: too large"


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

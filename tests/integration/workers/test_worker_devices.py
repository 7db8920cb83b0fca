"""A worker and its device: hangs that need a reset, devices that vanish, drains and re-tests, with
real processes and a real Redis."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from host_service import HEARTBEAT
from patience import WAIT_S, scaled
from servers import RedisServer
from worker_process import HOST, Workplace

DEVICE = f"{HOST}/troublesome:0"
QUEUE = "troublesome.wormhole.n150"
AROUND_A_BAD_SEED = [[0, 0], [2, 0], [1, 0]]
"""A build that goes wrong sometimes does so on seed 2."""
BUILDS = """
[executors.troublesome]
canary = "right"
[builds.watched]
executor = "troublesome"
options = { watcher_environment = { TROUBLE_WATCHER = "{folder}" } }
"""


class Lab:
    """A workplace whose device can be wedged and taken away, and commands that mend it."""

    def __init__(self, place: Workplace, folder: Path) -> None:
        self.place, self.folder = place, folder
        self.wedged, self.gone = folder / "wedged", folder / "gone"
        (folder / "builds.toml").write_text(BUILDS)

    def start(self, **environment: str) -> Any:
        """Start a worker of the troublesome executor."""
        usual = {
            "GONOGO_BUILDS": str(self.folder / "builds.toml"),
            "TROUBLE_WEDGED": str(self.wedged),
            "TROUBLE_GONE": str(self.gone),
            "GONOGO_RETEST_S": "0.5",
        }
        return self.place.start("troublesome", **(usual | environment))

    def command(self, program: str) -> str:
        """Return a command for the settings, which runs this Python program.

        Its arguments are the device's name and the wedge's file.
        """
        file = self.folder / f"command-{len(list(self.folder.glob('command-*')))}.py"
        file.write_text(program)
        return f"{sys.executable} {file} {{name}} {self.wedged}"

    def lives_on(self) -> None:
        """Wait for two more heartbeats: a worker that wants a chunk has taken it by then."""
        self.place.service.messages[HEARTBEAT].clear()
        for _ in range(2):
            self.place.beat(lambda _: True)

    def order(self, order: str, requested_tests: int = 0) -> None:
        """Write an order for the device, as the reaper does."""
        self.place.order(DEVICE, order, requested_tests)


@pytest.fixture
def lab(tmp_path: Path, redis_url: str) -> Iterator[Lab]:
    """A broker without workers yet; afterwards none of their processes may be left."""
    place = Workplace(redis_url, tmp_path)
    yield Lab(place, tmp_path)
    place.close()


@pytest.fixture(scope="module")
def lab_at_work(
    tmp_path_factory: pytest.TempPathFactory, redis_server: RedisServer
) -> Iterator[Lab]:
    """A worker whose device must be good again after each test."""
    folder = tmp_path_factory.mktemp("devices")
    place = Workplace(redis_server.url.removesuffix("/0") + "/5", folder)
    lab = Lab(place, folder)
    lab.start(GONOGO_CHILD_MEMORY_BYTES=str(512 * 2**20))
    yield lab
    place.close()


@pytest.fixture
def shared_lab(lab_at_work: Lab) -> Lab:
    """The worker at work; what it said before is forgotten."""
    place = lab_at_work.place
    place.service.messages[HEARTBEAT].clear()
    lab_at_work.order("work")
    place.healths.clear()
    return lab_at_work


MEND = "import os, sys; os.unlink(sys.argv[2]); print('reset', sys.argv[1])"
FAIL = "import sys; print('no such device'); sys.exit(4)"


def test_a_wedged_device_is_reset_and_the_other_seeds_go_on(lab: Lab) -> None:
    lab.start(GONOGO_RESET_DEVICE=lab.command(MEND))
    answer = lab.place.run(
        "wedges-sometimes", 3, work=AROUND_A_BAD_SEED, seed_deadline_s=scaled(0.8)
    )
    assert answer.verdicts == {0: "pass", 1: "pass", 2: "hang"}
    health_reports = lab.place.healths
    assert [body["health"] for body in health_reports] == ["good"]
    steps = health_reports[0]["evidence"]["steps"]
    assert [step["rung"] for step in steps] == ["re-open", "reset_device"]
    assert "the device does not answer" in steps[0]["outcome"]
    assert "a kernel hung" in health_reports[0]["reason"]
    assert lab.place.run("fine", 2).verdicts == {0: "pass", 1: "pass"}


def test_the_canary_runs_after_every_so_many_chunks_and_tells_its_bits(lab: Lab) -> None:
    lab.start(GONOGO_CANARY_EVERY_JOBS="1", GONOGO_RETEST_S="600")
    for _ in range(3):
        assert lab.place.run("fine", 1).verdicts == {0: "pass"}
    first, second = lab.place.routine
    assert lab.place.healths == []
    assert (first["device"], first["health"]) == (DEVICE, "good")
    assert first["evidence"]["executor"] == "troublesome"
    assert first["evidence"]["canary"] == "right"
    assert first["evidence"]["digests"] == second["evidence"]["digests"]
    assert set(first["evidence"]["digests"]) == {"dx", "dgamma", "dbeta"}
    lab.wedged.touch()  # only the canary notices: this build does not check
    answer = lab.place.run("fine", 1)
    assert answer.finished is not None
    assert (answer.finished["outcome"], answer.rows) == ("handed_back", [])
    assert "1 chunks had run" in lab.place.heard(lambda body: body["health"] == "bad")["reason"]


def test_a_device_that_stays_wedged_is_bad_takes_no_work_and_tests_itself_again(lab: Lab) -> None:
    lab.start(GONOGO_RESET_DEVICE=lab.command(FAIL))
    answer = lab.place.run("wedges-sometimes", 5, seed_deadline_s=scaled(0.8))
    assert answer.finished is not None
    assert answer.finished["outcome"] == "handed_back"
    assert "is bad" in answer.finished["error"]
    assert answer.verdicts == {0: "pass", 1: "pass", 2: "hang"}  # 3 and 4 are for another device
    health_report = lab.place.heard(lambda body: body["health"] == "bad")
    assert "ended with status 4" in health_report["reason"]
    beat = lab.place.beat(lambda body: body["queues"] == [])
    assert beat["devices"][0]["health"] == "bad"
    waiting = lab.place.publish("fine", 1)
    lab.place.heard(lambda body: body["health"] == "bad" and "bad before" in body["reason"])
    assert lab.place.redis.llen(QUEUE) == 1  # a re-test has failed, and nobody took it
    lab.wedged.unlink()
    lab.place.wait(waiting)
    assert lab.place.answer(waiting).verdicts == {0: "pass"}
    lab.place.heard(lambda body: body["health"] == "good")
    assert lab.place.beat(lambda body: body["queues"] == [QUEUE])["devices"][0]["health"] == "good"


def test_a_restart_makes_no_bad_device_good(lab: Lab) -> None:
    worker = lab.start()
    lab.place.run("wedges", 1, seed_deadline_s=scaled(0.8))
    worker.send_signal(signal.SIGTERM)
    worker.wait(WAIT_S)
    lab.start(GONOGO_RETEST_S="600")
    assert lab.place.beat(lambda body: body["queues"] == [])["devices"][0]["health"] == "bad"
    lab.wedged.unlink()
    lab.order("drain", 0)
    lab.place.beat(lambda body: body["devices"][0]["order"] == "drain")
    lab.order("work", 1)  # a person asks for a test
    lab.place.heard(lambda body: body["health"] == "good")
    assert lab.place.run("fine", 1).verdicts == {0: "pass"}


def test_a_hung_seed_runs_again_under_the_watcher_which_names_the_kernel(lab: Lab) -> None:
    triage = lab.command("import sys; print('triage of', sys.argv[1])")
    lab.start(GONOGO_TT_TRIAGE=triage)
    answer = lab.place.run("watched", 1, seed_deadline_s=scaled(1.0))
    assert answer.verdicts == {0: "hang"}
    message = (
        f"no answer within {scaled(1):g} s; "
        "under the watcher: stuck in the compute: TRISC0 runs of kernels/ln.cpp"
    )
    assert answer.rows[0]["message"].startswith(message)
    contents = {artifact["kind"]: artifact["content"] for artifact in answer.artifacts}
    assert contents["watcher"]["role"] == "compute"
    assert contents["watcher"]["outcome"] == "hang"
    assert "CWFW,CRBW" in contents["watcher"]["log"]
    assert "block 1" in contents["watcher"]["prints"]
    assert contents["watcher"]["waypoints"][0]["NCRISC"] == "CRBW"
    assert contents["triage"] == {"text": "triage of troublesome:0\n", "trouble": None}
    assert lab.place.run("fine", 1).verdicts == {0: "pass"}


def test_a_device_that_vanishes_costs_no_seed(shared_lab: Lab) -> None:
    lab = shared_lab
    assert lab.place.run("fine", 1).verdicts == {0: "pass"}
    lab.gone.touch()
    answer = lab.place.run("fine", 3)
    assert answer.rows == []
    assert answer.finished is not None
    assert answer.finished["outcome"] == "handed_back"
    assert "no such device" in lab.place.heard(lambda body: body["health"] == "bad")["reason"]
    lab.gone.unlink()
    lab.place.heard(lambda body: body["health"] == "good")
    assert lab.place.run("fine", 1).verdicts == {0: "pass"}


def test_a_build_that_can_t_be_opened_on_a_good_device_is_the_build_s_error(
    shared_lab: Lab,
) -> None:
    answer = shared_lab.place.run("nonsense", 2)
    assert set(answer.verdicts.values()) == {"error"}
    assert shared_lab.place.healths == []


def test_a_drained_device_ends_its_seed_hands_the_rest_back_and_comes_back(
    shared_lab: Lab,
) -> None:
    lab = shared_lab
    attempt = lab.place.publish("slow", 100)
    lab.place.wait(attempt, lambda answer: len(answer.rows) > 1)
    lab.order("drain")
    answer = lab.place.wait(attempt)
    assert answer.finished is not None
    assert answer.finished["outcome"] == "handed_back"
    assert set(answer.verdicts.values()) == {"pass"}
    assert sorted(answer.finished["sent"]) == answer.work
    assert 1 < len(answer.rows) < 100
    assert lab.place.beat(lambda body: body["queues"] == [])["devices"][0]["order"] == "drain"
    waiting = lab.place.publish("fine", 1)
    lab.lives_on()
    assert lab.place.redis.llen(QUEUE) == 1
    lab.order("work")
    assert lab.place.wait(waiting).verdicts == {0: "pass"}


def test_a_worker_of_a_drained_device_takes_nothing_from_its_start(lab: Lab) -> None:
    lab.order("maintenance")
    waiting = lab.place.publish("fine", 1)
    lab.start()
    assert lab.place.beat(lambda body: body["queues"] == [])["devices"][0]["order"] == "maintenance"
    lab.lives_on()
    answer = lab.place.answer(waiting)
    assert answer.finished is None
    assert lab.place.redis.llen(QUEUE) == 1  # it was not taken and handed back
    lab.order("work")
    lab.place.wait(waiting)


def test_a_chunk_has_a_deadline_of_its_own(lab: Lab) -> None:
    worker = lab.start(GONOGO_CHUNK_DEADLINE_S=str(scaled(1.5)))
    answer = lab.place.run("slow", 200)
    assert answer.finished is not None
    assert answer.finished["outcome"] == "error"
    assert answer.finished["error"] == f"the attempt took longer than {scaled(1.5):g} s"
    assert 0 < len(answer.rows) < 200
    # the device is well; the first worker's deadline would hold for this chunk, too
    worker.send_signal(signal.SIGTERM)
    worker.wait(WAIT_S)
    lab.start()
    assert lab.place.run("fine", 1).verdicts == {0: "pass"}


@pytest.mark.parametrize(
    ("build", "verdict", "message"),
    [
        ("hungry", "error", "MemoryError"),
        ("pipe-holder", "crash", "status 3"),
        ("simulator", "crash", "SIGKILL"),
        ("stubborn-hang", "hang", "no answer within"),
    ],
)
def test_bad_luck_leaves_a_log_no_process_and_a_good_device(
    shared_lab: Lab, build: str, verdict: str, message: str
) -> None:
    lab, began = shared_lab, time.time()
    deadline_s = scaled(1.0 if verdict == "hang" else 20.0)
    answer = lab.place.run(
        f"{build}-sometimes", 3, work=AROUND_A_BAD_SEED, seed_deadline_s=deadline_s
    )
    assert answer.verdicts == {0: "pass", 1: "pass", 2: verdict}, lab.place.log()
    assert message in next(row["message"] for row in answer.rows if row["seed"] == 2)
    if build == "pipe-holder":
        logs = [
            artifact["content"]["text"]
            for artifact in answer.artifacts
            if artifact["kind"] == "log"
        ]
        assert "about to leave a child behind" in logs[0]
    assert lab.place.run("fine", 2).verdicts == {0: "pass", 1: "pass"}
    assert lab.place.beat(lambda body: body["attempt"] is None)["devices"][0]["health"] == "good"
    assert [body["health"] for body in lab.place.healths if body["health"] == "bad"] == []
    deadline = time.monotonic() + WAIT_S
    while litter := [
        process
        for process in psutil.process_iter(["cmdline", "create_time"])
        if process.info["create_time"] >= began
        and "while True: time.sleep(1)" in " ".join(process.info["cmdline"] or [])
    ]:
        assert time.monotonic() < deadline, litter
        time.sleep(0.05)


def test_a_gigabyte_of_prints_does_not_hold_the_kernel(shared_lab: Lab) -> None:
    lab = shared_lab
    began = time.monotonic()
    answer = lab.place.run("gigabyte", 1)
    assert answer.verdicts == {0: "pass"}
    assert answer.rows[0]["duration_ms"] < scaled(15_000)
    assert time.monotonic() - began < scaled(30)
    assert answer.finished is not None
    assert 0 < len(answer.finished["log_tail"]) <= 64 * 1024


SMI = """#!/bin/sh
cat "$SNAPSHOT"
"""


def test_a_worker_on_a_chip_announces_it_and_stores_its_telemetry(lab: Lab, tmp_path: Path) -> None:
    smi = tmp_path / "tt-smi"
    smi.write_text(SMI)
    smi.chmod(0o755)
    board = {"bus_id": "0000:01:00.0", "board_type": "n300 L", "board_id": "010001451170801d"}
    telemetry = {"asic_temperature": "42.4", "aiclk": "1000", "power": "31.0"}
    chip = {
        "board_info": board,
        "telemetry": telemetry,
        "firmwares": {"fw_bundle_version": "18.3.0.0"},
    }
    (tmp_path / "snapshot.json").write_text(
        json.dumps({"host_info": {"Driver": "TT-KMD 2.0.0"}, "device_info": [chip]})
    )
    place = lab.place
    place.start(
        "troublesome",
        "010001451170801d",
        GONOGO_TT_SMI=str(smi),
        SNAPSHOT=str(tmp_path / "snapshot.json"),
    )
    beat = place.beat(lambda body: bool(body["devices"]))
    (device,) = beat["devices"]
    assert (device["device"], device["board"], device["driver"]) == (
        f"{HOST}/wormhole:0",
        "n300",
        "TT-KMD 2.0.0",
    )
    assert beat["queues"] == ["troublesome.wormhole.n300"]
    answer = place.run("environment", 1, board="n300")
    assert answer.finished is not None
    assert "TT_VISIBLE_DEVICES" in answer.finished["log_tail"]
    reading = answer.finished["telemetry"]
    assert (
        reading["temperature_c"],
        reading["clock_mhz"],
        reading["power_w"],
        reading["firmware"],
    ) == (
        42.4,
        1000.0,
        31.0,
        "18.3.0.0",
    )
    assert answer.rows[0]["device"] == f"{HOST}/wormhole:0"

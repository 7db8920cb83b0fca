"""A worker and its device: hangs that need a reset, devices that vanish, drains and re-tests, with
real processes and a real Redis."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from host_service import HEARTBEAT
from patience import WAIT_S, scaled
from worker_process import HOST, Workplace

DEVICE = f"{HOST}/troublesome:0"
QUEUE = "troublesome.wormhole.n150"
BUILDS = """
[executors.troublesome]
canary = "right"
[builds.watched]
executor = "troublesome"
options = { watcher_environment = { TROUBLE_WATCHER = "{folder}" } }
"""
MEND = "import os, sys; os.unlink(sys.argv[2]); print('reset', sys.argv[1])"
FAIL = "import sys; print('no such device'); sys.exit(4)"
HANG_S = scaled(0.8)
"""The deadline of a seed that hangs."""


class Lab:
    """A workplace whose device can be wedged and taken away, and commands that mend it."""

    def __init__(self, place: Workplace) -> None:
        self.place, self.folder = place, place.folder
        self.wedged, self.gone = self.folder / "wedged", self.folder / "gone"
        (self.folder / "builds.toml").write_text(BUILDS)

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
        file = self.folder / "command.py"
        file.write_text(program)
        return f"{sys.executable} {file} {{name}} {self.wedged}"

    def takes_nothing(self) -> None:
        """Wait for two more heartbeats: a worker that wants a chunk has taken it by then."""
        self.place.service.messages[HEARTBEAT].clear()
        for _ in range(2):
            self.place.beat(lambda _: True)
        assert self.place.redis.llen(QUEUE) == 1

    def heard(self, health: str) -> dict[str, Any]:
        """Wait for a report of this health."""
        return self.place.heard(lambda body: body["health"] == health)

    def facts(self, queues: list[str]) -> dict[str, Any]:
        """Return the device in the next heartbeat that serves these queues."""
        facts: dict[str, Any] = self.place.beat(lambda body: body["queues"] == queues)["devices"][0]
        return facts

    def is_well(self) -> None:
        assert self.place.run("fine", 1).verdicts == {0: "pass"}


@pytest.fixture
def lab(place: Workplace) -> Lab:
    return Lab(place)


@pytest.fixture(scope="module")
def lab_at_work(shared_place: Workplace) -> Lab:
    lab = Lab(shared_place)
    lab.start()
    return lab


@pytest.fixture
def shared_lab(lab_at_work: Lab) -> Lab:
    """A worker at work, whose device must be good again afterwards; what it said is forgotten."""
    lab_at_work.place.service.messages[HEARTBEAT].clear()
    lab_at_work.place.order(DEVICE, "work")
    lab_at_work.place.healths.clear()
    return lab_at_work


def test_a_wedged_device_is_reset_and_the_other_seeds_go_on(lab: Lab) -> None:
    lab.start(GONOGO_RESET_DEVICE=lab.command(MEND))
    work = [[0, 0], [2, 0], [1, 0]]
    answer = lab.place.run("wedges-sometimes", 3, work=work, seed_deadline_s=HANG_S)
    assert answer.verdicts == {0: "pass", 1: "pass", 2: "hang"}
    (report,) = lab.place.healths
    steps = report["evidence"]["steps"]
    assert report["health"] == "good"
    assert [step["rung"] for step in steps] == ["re-open", "reset_device"]
    assert "the device does not answer" in steps[0]["outcome"]
    assert "a kernel hung" in report["reason"]
    lab.is_well()


def test_the_canary_runs_after_every_so_many_chunks_and_tells_its_bits(lab: Lab) -> None:
    lab.start(GONOGO_CANARY_EVERY_JOBS="1", GONOGO_RETEST_S="600")
    for _ in range(3):
        lab.is_well()
    first, second = lab.place.routine
    assert lab.place.healths == []
    assert (first["device"], first["health"]) == (DEVICE, "good")
    evidence = first["evidence"]
    assert (evidence["executor"], evidence["canary"]) == ("troublesome", "right")
    assert evidence["digests"] == second["evidence"]["digests"]
    assert set(evidence["digests"]) == {"dx", "dgamma", "dbeta"}
    lab.wedged.touch()  # only the canary notices: this build does not check
    answer = lab.place.run("fine", 1)
    assert (answer.end["outcome"], answer.rows) == ("handed_back", [])
    assert "1 chunks had run" in lab.heard("bad")["reason"]


def test_a_device_that_stays_wedged_is_bad_takes_no_work_and_tests_itself_again(lab: Lab) -> None:
    lab.start(GONOGO_RESET_DEVICE=lab.command(FAIL))
    answer = lab.place.run("wedges-sometimes", 5, seed_deadline_s=HANG_S)
    assert answer.end["outcome"] == "handed_back"
    assert "is bad" in answer.end["error"]
    assert answer.verdicts == {0: "pass", 1: "pass", 2: "hang"}  # 3 and 4 are for another device
    assert "ended with status 4" in lab.heard("bad")["reason"]
    assert lab.facts([])["health"] == "bad"
    waiting = lab.place.publish("fine", 1)
    lab.place.heard(lambda body: body["health"] == "bad" and "bad before" in body["reason"])
    assert lab.place.redis.llen(QUEUE) == 1  # a re-test has failed, and nobody took it
    lab.wedged.unlink()
    assert lab.place.wait(waiting).verdicts == {0: "pass"}
    lab.heard("good")
    assert lab.facts([QUEUE])["health"] == "good"


def test_a_hung_seed_runs_again_under_the_watcher_which_names_the_kernel(lab: Lab) -> None:
    lab.start(GONOGO_TT_TRIAGE=lab.command("import sys; print('triage of', sys.argv[1])"))
    answer = lab.place.run("watched", 1, seed_deadline_s=HANG_S)
    assert answer.verdicts == {0: "hang"}
    stuck = "under the watcher: stuck in the compute: TRISC0 runs of kernels/ln.cpp"
    assert answer.rows[0]["message"].startswith(f"no answer within {HANG_S:g} s; {stuck}")
    (watched,), (triage,) = answer.contents("watcher"), answer.contents("triage")
    assert (watched["role"], watched["outcome"]) == ("compute", "hang")
    assert "CWFW,CRBW" in watched["log"]
    assert "block 1" in watched["prints"]
    assert watched["waypoints"][0]["NCRISC"] == "CRBW"
    assert triage == {"text": "triage of troublesome:0\n", "trouble": None}
    lab.is_well()


def test_a_device_that_vanishes_costs_no_seed(shared_lab: Lab) -> None:
    lab = shared_lab
    lab.is_well()
    lab.gone.touch()
    answer = lab.place.run("fine", 3)
    assert (answer.end["outcome"], answer.rows) == ("handed_back", [])
    assert "no such device" in lab.heard("bad")["reason"]
    lab.gone.unlink()
    lab.heard("good")
    lab.is_well()


@pytest.mark.parametrize(
    ("build", "message"), [("nonsense", "unknown build"), ("crash-sometimes", "SIGSEGV")]
)
def test_what_a_build_does_wrong_makes_no_good_device_bad(
    shared_lab: Lab, build: str, message: str
) -> None:
    rows = shared_lab.place.run(build, 3).rows
    assert message in next(row["message"] for row in rows if row["seed"] == 2)
    shared_lab.is_well()
    assert shared_lab.facts([QUEUE])["health"] == "good"
    assert {body["health"] for body in shared_lab.place.healths} <= {"good"}


def test_a_worker_of_a_drained_device_takes_nothing_from_its_start(lab: Lab) -> None:
    lab.place.order(DEVICE, "maintenance")
    waiting = lab.place.publish("fine", 1)
    lab.start()
    assert lab.facts([])["order"] == "maintenance"
    lab.takes_nothing()  # it was not taken and handed back
    assert lab.place.answer(waiting).finished is None
    lab.place.order(DEVICE, "work")
    lab.place.wait(waiting)


def test_a_chunk_has_a_deadline_of_its_own(lab: Lab) -> None:
    worker = lab.start(GONOGO_CHUNK_DEADLINE_S=str(scaled(1.5)))
    answer = lab.place.run("slow", 200)
    assert answer.end["outcome"] == "error"
    assert answer.end["error"] == f"the attempt took longer than {scaled(1.5):g} s"
    assert 0 < len(answer.rows) < 200
    # the device is well; the first worker's deadline would hold for this chunk, too
    worker.send_signal(signal.SIGTERM)
    worker.wait(WAIT_S)
    lab.start()
    lab.is_well()


def test_a_worker_on_a_chip_announces_it_and_stores_its_telemetry(
    place: Workplace, tmp_path: Path
) -> None:
    serial = "010001451170801d"
    chip = {
        "board_info": {"bus_id": "0000:01:00.0", "board_type": "n300 L", "board_id": serial},
        "telemetry": {"asic_temperature": "42.4", "aiclk": "1000", "power": "31.0"},
        "firmwares": {"fw_bundle_version": "18.3.0.0"},
    }
    snapshot = {"host_info": {"Driver": "TT-KMD 2.0.0"}, "device_info": [chip]}
    (tmp_path / "snapshot.json").write_text(json.dumps(snapshot))
    smi = tmp_path / "tt-smi"
    smi.write_text(f"#!/bin/sh\ncat {tmp_path}/snapshot.json\n")
    smi.chmod(0o755)
    place.start("troublesome", serial, GONOGO_TT_SMI=str(smi))
    beat = place.beat(lambda body: bool(body["devices"]))
    (device,) = beat["devices"]
    facts = {"device": f"{HOST}/wormhole:0", "board": "n300", "driver": "TT-KMD 2.0.0"}
    assert facts.items() <= device.items()
    assert beat["queues"] == ["troublesome.wormhole.n300"]
    answer = place.run("environment", 1, board="n300")
    assert "TT_VISIBLE_DEVICES" in answer.end["log_tail"]
    reading = {"temperature_c": 42.4, "clock_mhz": 1000.0, "power_w": 31.0, "firmware": "18.3.0.0"}
    assert reading.items() <= answer.end["telemetry"].items()
    assert answer.rows[0]["device"] == f"{HOST}/wormhole:0"


def test_a_card_that_its_program_does_not_replay_accuses_nobody(
    place: Workplace, tmp_path: Path
) -> None:
    """Its last canary said so; NaN is wrong on any card."""
    reason = "the card isn't known well enough"
    subject = {"build": "correct", "firmware": {}}
    ledger = {"subject": subject, "replay": "9 %", "unreplayed": reason}
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks/emulator-0.canary").write_text(json.dumps(ledger))
    place.start("emulator")
    wrong, nan = (
        place.run(build, 1, executor="emulator").rows[0] for build in ("tt-train-2025", "nan-tile")
    )
    assert (wrong["verdict"], wrong["outputs"]["dx"]["reason"]) == ("inconclusive", reason)
    assert wrong["outputs"]["dgamma"]["explanation"] == "explained"
    assert nan["verdict"] == "fail"

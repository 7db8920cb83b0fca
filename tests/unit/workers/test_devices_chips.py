"""Chips as this host's tools list them: tt-smi's snapshot, and the chip that a name means."""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gonogo.errors import FieldError, InfrastructureError
from gonogo_workers.devices import chips, discovery, locks, tt_smi
from gonogo_workers.devices.chip import Chip
from gonogo_workers.devices.driver import Driver
from gonogo_workers.devices.telemetry import Telemetry


def entry(board: str, serial: str, bus: str, temperature: str = "42.4") -> dict[str, Any]:
    """One chip as tt-smi describes it: measured values are text."""
    telemetry = {"voltage": "0.80", "current": " 25.0", "power": " 20.0", "board_power": "N/A"}
    telemetry |= {"aiclk": " 800", "asic_temperature": temperature, "fan_speed": "35"}
    firmwares = {"fw_bundle_version": "18.3.0.0", "cm_fw": "2.32.0.0", "gddr_fw": "N/A"}
    board_info = {"bus_id": bus, "board_type": board, "board_id": serial, "dram_status": True}
    smbus = {"BOARD_ID_HIGH": "0x1000145", "ASIC_TEMPERATURE": "0x2a6"}
    parts = {"board_info": board_info, "telemetry": telemetry, "firmwares": firmwares}
    return {"smbus_telem": smbus, **parts, "limits": {"tdp_limit": "85"}}


SNAPSHOT = {
    "time": "2026-01-31T12:00:00.000000",
    "host_info": {"OS": "Linux", "Hostname": "lab-1", "Driver": "TT-KMD 2.0.0", "Kernel": "6.8.0"},
    "host_sw_vers": {"tt_smi": "3.0.0"},
    "device_info": [
        entry("n300 L", "010001451170801D", "0000:01:00.0"),
        entry("n150 L", "0100018611902010", "0000:02:00.0", "55.0"),
        entry("n300 R", "010001451170801D", "N/A"),
    ],
}


def program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_snapshot_gives_the_chips_with_a_pci_address_and_their_numbers() -> None:
    first, second = tt_smi.parse_snapshot(SNAPSHOT)
    assert (first.index, first.arch, first.board) == (0, "wormhole", "n300")
    assert (first.serial, first.pci) == ("010001451170801d", "0000:01:00.0")
    assert (first.driver, first.firmware["fw_bundle_version"]) == ("TT-KMD 2.0.0", "18.3.0.0")
    assert "gddr_fw" not in first.firmware
    assert (second.name, second.board) == ("wormhole:1", "n150")
    units = {"temperature_c": 55.0, "clock_mhz": 800.0, "power_w": 20.0, "voltage_v": 0.8}
    numbers = {**units, "current_a": 25.0, "firmware": "18.3.0.0"}
    assert tt_smi.parse_telemetry(SNAPSHOT, 1) == numbers
    assert tt_smi.parse_telemetry(SNAPSHOT, 7) == {}
    for nonsense in NONSENSE:
        assert tt_smi.parse_snapshot(nonsense) == ()
        assert tt_smi.parse_telemetry(nonsense, 0) == {}


NONSENSE: tuple[Any, ...] = (
    *(None, [], "text", {"device_info": 3}),
    {"device_info": [None, {"board_info": []}, {}]},
)
FAKE = """#!/bin/sh
{body}
"""


@pytest.mark.parametrize(
    "body",
    [
        'echo "Gathering Information"; cat "$SNAPSHOT"',  # newer versions: standard output
        # older ones: a file
        'while [ "$1" != -f ]; do shift; done; cp "$SNAPSHOT" "$2"; echo "Saved tt-smi log to: $2"',
    ],
)
def test_both_kinds_of_tt_smi_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    (tmp_path / "snapshot.json").write_text(json.dumps(SNAPSHOT, indent=4))
    monkeypatch.setenv("SNAPSHOT", str(tmp_path / "snapshot.json"))
    listed = chips.look(str(program(tmp_path / "tt-smi", FAKE.format(body=body))))
    assert [chip.board for chip in listed] == ["n300", "n150"]


@pytest.mark.parametrize("body", ["exit 1", "sleep 60", "echo '{'", "echo nothing", "kill -9 $$"])
def test_a_tt_smi_that_fails_or_hangs_has_no_chips(tmp_path: Path, body: str) -> None:
    smi = program(tmp_path / "tt-smi", FAKE.format(body=body))
    assert chips.look(str(smi), deadline_s=0.5) == chips.look(str(tmp_path / "none")) == ()


NUMBERS = {
    "tt_aiclk": "1000\n",
    "device/hwmon/hwmon3/temp1_input": "42437\n",
    "device/hwmon/hwmon3/power1_input": "31000000\n",
    "device/hwmon/hwmon3/in0_input": "800\n",
    "device/hwmon/hwmon3/curr1_input": "4294967295\n",  # all ones: the chip did not answer
    "tt_fw_bundle_ver": "18.3.0.0\n",
}
OLD = {"device/device": "0x401e\n"}
FACTS = {"tt_card_type": "n150\n", "tt_serial": "0100018611902010\n", **OLD}


def driver(root: Path, index: int, files: Mapping[str, str], pids: str = "") -> Driver:
    """Write the files of a driver with one more chip, as tt-kmd's documentation describes them."""
    pci = root / f"sys/devices/pci0000:00/0000:{index + 1:02x}:00.0"
    folder = root / f"sys/class/tenstorrent/tenstorrent!{index}"
    pci.mkdir(parents=True)
    folder.mkdir(parents=True)
    (folder / "device").symlink_to(pci)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    process_list = root / f"proc/driver/tenstorrent/{index}/pids"
    process_list.parent.mkdir(parents=True)
    process_list.write_text(pids)
    return Driver(root)


def counting(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Callable[[], int]]:
    """A tt-smi that knows two chips, and how often it has run."""
    (folder / "snapshot.json").write_text(json.dumps(SNAPSHOT))
    calls = folder / "calls"
    monkeypatch.setenv("SNAPSHOT", str(folder / "snapshot.json"))
    monkeypatch.setenv("CALLS", str(calls))
    smi = program(folder / "tt-smi", FAKE.format(body='echo call >>"$CALLS"; cat "$SNAPSHOT"'))
    return str(smi), lambda: len(calls.read_text().split()) if calls.exists() else 0


def test_the_driver_s_files_give_chips_and_numbers_at_any_time_and_no_tool_opens_a_chip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smi, calls = counting(tmp_path, monkeypatch)
    kernel = driver(tmp_path / "host", 1, NUMBERS | FACTS, pids="4711\n")
    (chip,) = chips.look(smi, kernel=kernel)
    assert (chip.name, chip.board, chip.serial) == ("wormhole:1", "n150", "0100018611902010")
    assert (chip.pci, chip.source) == ("0000:02:00.0", "driver")
    assert chip.firmware == {"fw_bundle_version": "18.3.0.0"}
    telemetry = Telemetry(smi, chip, tmp_path, kernel=kernel)
    telemetry.between_chunks()
    values = telemetry.latest()
    assert values.pop("at") > 0
    units = {"temperature_c": 42.437, "clock_mhz": 1000.0, "power_w": 31.0, "voltage_v": 0.8}
    assert values == {**units, "firmware": "18.3.0.0"}
    assert calls() == 0


def test_an_old_driver_is_completed_by_the_tools_but_not_while_a_process_uses_a_chip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    smi, calls = counting(tmp_path, monkeypatch)
    for number, pids, listed in (
        (1, "", [("n300", "tt-smi"), ("n150", "driver, tt-smi")]),  # by their PCI addresses
        (0, "4711\n", [(None, "driver")]),
    ):
        kernel = driver(tmp_path / f"host{number}", number, OLD, pids=pids)
        looked_up = chips.look(smi, kernel=kernel)
        assert [(chip.board, chip.source) for chip in looked_up] == listed
        assert calls() == 1
    assert "processes use wormhole:0 (4711)" in caplog.text


def test_tt_smi_runs_between_chunks_only_and_while_no_chip_of_the_host_is_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smi, calls = counting(tmp_path, monkeypatch)
    chip = Chip(0, "wormhole", "n300")
    busy = driver(tmp_path / "busy", 0, OLD, pids="4711\n")
    Telemetry(smi, chip, tmp_path, kernel=busy).between_chunks()
    telemetry = Telemetry(smi, chip, tmp_path, kernel=Driver(tmp_path / "none"))
    waits = threading.Event()
    neighbor = locks.acquire(tmp_path, "wormhole:1", lambda: False, waits)
    emulator = locks.acquire(tmp_path, "emulator:0", lambda: False, waits)
    telemetry.between_chunks()
    assert (calls(), telemetry.latest()) == (0, {})
    neighbor.close()
    own_lock = locks.acquire(tmp_path, "wormhole:0", lambda: False, waits)
    telemetry.between_chunks()
    telemetry.between_chunks()  # at most once a minute
    assert (calls(), telemetry.latest()["temperature_c"]) == (1, 42.4)
    own_lock.close()
    emulator.close()
    locks.acquire(tmp_path, "wormhole:1", lambda: False, waits).close()


CHIPS = tt_smi.parse_snapshot(SNAPSHOT)


def claim(folder: Path, executor: str, requested: str | None, **more: Any) -> discovery.Device:
    usual: dict[str, Any] = {"host": "lab-1", "arch": "wormhole", "board": "n150"}
    return discovery.claim(executor, requested, folder, **usual | more)


@pytest.mark.parametrize(
    "requested", ["1", "ttnn:1", "wormhole:1", "0100018611902010", "0000:02:00.0"]
)
def test_a_chip_may_be_named_in_every_way(tmp_path: Path, requested: str) -> None:
    device = claim(tmp_path, "ttnn", requested, chips=CHIPS)
    try:
        assert (device.name, device.queue) == ("wormhole:1", "ttnn.wormhole.n150")
        assert device.environment == {"TT_VISIBLE_DEVICES": "1"}
        assert device.facts["serial"] == "0100018611902010"
        chip = Chip(0, "wormhole")
        assert [chip.called(name) for name in ("0", "", "none")] == [True, False, False]
    finally:
        os.close(device.claim)


def test_executors_share_a_chip_but_two_workers_of_one_do_not(tmp_path: Path) -> None:
    devices = [claim(tmp_path, executor, "0", chips=CHIPS) for executor in ("ttnn", "gtest")]
    try:
        assert devices[0].identity == devices[1].identity
        with pytest.raises(InfrastructureError, match="another worker"):
            claim(tmp_path, "ttnn", "0", chips=CHIPS)
        with pytest.raises(FieldError, match=r"0 \(wormhole:0, 010001451170801d, 0000:01:00.0\)"):
            claim(tmp_path, "ttnn", "7", chips=CHIPS)
    finally:
        for device in devices:
            os.close(device.claim)


def test_without_chips_and_for_other_executors_a_device_is_virtual_and_each_worker_has_its_own(
    tmp_path: Path,
) -> None:
    first, second = (claim(tmp_path, "emulator", None, board=board) for board in ("n150", "n300"))
    devices = [
        *(first, second, claim(tmp_path, "ttnn", "0")),
        claim(tmp_path, "emulator", "2", chips=CHIPS),
        claim(tmp_path, "mine", "wormhole:1", chips=CHIPS),
    ]
    try:
        names = ["emulator:0", "emulator:1", "ttnn:0", "emulator:2", "wormhole:1"]
        assert [device.name for device in devices] == names
        assert [device.environment for device in devices[:4]] == [{}] * 4
        assert second.queue == "emulator.wormhole.n300"
        with pytest.raises(InfrastructureError, match="emulator:1"):
            claim(tmp_path, "emulator", "emulator:1")
        with pytest.raises(FieldError):
            claim(tmp_path, "emulator", "ttnn:0")
    finally:
        for device in devices:
            os.close(device.claim)

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
    """Return one chip as tt-smi's documentation and tests describe it: measured values are text."""
    return {
        "smbus_telem": {
            "BOARD_ID_HIGH": "0x1000145",
            "BOARD_ID_LOW": "0x1170801d",
            "AICLK": "0x3e80320",
            "ASIC_TEMPERATURE": "0x2a6",
        },
        "board_info": {
            "bus_id": bus,
            "board_type": board,
            "board_id": serial,
            "coords": "(0, 0, 0, 0)",
            "dram_status": True,
            "dram_speed": "12G",
            "pcie_speed": 4,
            "pcie_width": "16",
        },
        "telemetry": {
            "voltage": "0.80",
            "current": " 25.0",
            "power": " 20.0",
            "board_power": "N/A",
            "aiclk": " 800",
            "asic_temperature": temperature,
            "fan_speed": "35",
            "heartbeat": "1234",
        },
        "firmwares": {
            "fw_bundle_version": "18.3.0.0",
            "cm_fw": "2.32.0.0",
            "eth_fw": "6.14.0",
            "gddr_fw": "N/A",
        },
        "limits": {"vdd_min": "0.70", "vdd_max": "0.95", "tdp_limit": "85", "thm_limit": "75"},
    }


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
    """Write an executable file and return its path."""
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_snapshot_gives_the_chips_with_a_pci_address() -> None:
    first, second = tt_smi.parse_snapshot(SNAPSHOT)
    assert (first.index, first.arch, first.board, first.serial) == (
        0,
        "wormhole",
        "n300",
        "010001451170801d",
    )
    assert (first.pci, first.driver, first.firmware["fw_bundle_version"]) == (
        "0000:01:00.0",
        "TT-KMD 2.0.0",
        "18.3.0.0",
    )
    assert "gddr_fw" not in first.firmware
    assert (second.name, second.board) == ("wormhole:1", "n150")


def test_telemetry_is_numbers_with_their_units() -> None:
    assert tt_smi.parse_telemetry(SNAPSHOT, 1) == {
        "temperature_c": 55.0,
        "clock_mhz": 800.0,
        "power_w": 20.0,
        "voltage_v": 0.8,
        "current_a": 25.0,
        "firmware": "18.3.0.0",
    }
    assert tt_smi.parse_telemetry(SNAPSHOT, 7) == {}


@pytest.mark.parametrize(
    "nonsense",
    [None, [], "text", {"device_info": 3}, {"device_info": [None, {"board_info": []}, {}]}],
)
def test_what_is_no_snapshot_has_no_chips(nonsense: object) -> None:
    assert tt_smi.parse_snapshot(nonsense) == ()
    assert tt_smi.parse_telemetry(nonsense, 0) == {}


def test_the_driver_and_tt_smi_complete_each_other_by_pci_address() -> None:
    listed = (Chip(1, "wormhole", pci="0000:02:00.0", source="driver"),)
    both = chips.merged(listed, tt_smi.parse_snapshot(SNAPSHOT))
    assert [(chip.index, chip.board, chip.source) for chip in both] == [
        (0, "n300", "tt-smi"),
        (1, "n150", "driver, tt-smi"),
    ]


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
    assert (
        chips.look(
            str(program(tmp_path / "tt-smi", FAKE.format(body=body))),
            deadline_s=0.5,
        )
        == ()
    )
    assert chips.look(str(tmp_path / "none")) == ()


NUMBERS = {
    "tt_aiclk": "1000\n",
    "device/hwmon/hwmon3/temp1_input": "42437\n",
    "device/hwmon/hwmon3/power1_input": "31000000\n",
    "device/hwmon/hwmon3/in0_input": "800\n",
    "device/hwmon/hwmon3/curr1_input": "4294967295\n",  # all ones: the chip did not answer
    "tt_fw_bundle_ver": "18.3.0.0\n",
}
FACTS = {
    "tt_card_type": "n150\n",
    "tt_serial": "0100018611902010\n",
    "device/device": "0x401e\n",
}


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
    """Return a tt-smi that knows two chips, and how often it has run."""
    (folder / "snapshot.json").write_text(json.dumps(SNAPSHOT))
    calls = folder / "calls"
    monkeypatch.setenv("SNAPSHOT", str(folder / "snapshot.json"))
    monkeypatch.setenv("CALLS", str(calls))
    smi = program(folder / "tt-smi", FAKE.format(body='echo call >>"$CALLS"; cat "$SNAPSHOT"'))
    return str(smi), lambda: len(calls.read_text().split()) if calls.exists() else 0


def test_the_drivers_files_list_the_chips_and_no_tool_opens_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smi, calls = counting(tmp_path, monkeypatch)
    kernel = driver(tmp_path / "host", 1, NUMBERS | FACTS)
    (chip,) = chips.look(smi, kernel=kernel)
    assert (chip.name, chip.board, chip.serial, chip.pci, chip.source) == (
        "wormhole:1",
        "n150",
        "0100018611902010",
        "0000:02:00.0",
        "driver",
    )
    assert chip.firmware == {"fw_bundle_version": "18.3.0.0"}
    assert calls() == 0


def test_an_old_driver_is_completed_by_the_tools_but_not_while_a_process_uses_a_chip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    smi, calls = counting(tmp_path, monkeypatch)
    old = {"device/device": "0x401e\n"}
    kernel = driver(tmp_path / "idle", 0, old)
    assert [(chip.board, chip.source) for chip in chips.look(smi, kernel=kernel)] == [
        ("n300", "driver, tt-smi"),
        ("n150", "tt-smi"),
    ]
    assert calls() == 1
    kernel = driver(tmp_path / "busy", 0, old, pids="4711\n")
    assert [chip.board for chip in chips.look(smi, kernel=kernel)] == [None]
    assert calls() == 1
    assert "processes use wormhole:0 (4711)" in caplog.text


def test_the_drivers_numbers_are_read_at_any_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smi, calls = counting(tmp_path, monkeypatch)
    kernel = driver(tmp_path / "host", 0, NUMBERS | FACTS, pids="4711\n")
    telemetry = Telemetry(smi, *kernel.chips(), tmp_path, kernel=kernel)
    telemetry.between_chunks()
    values = telemetry.latest()
    assert values.pop("at") > 0
    assert values == {
        "temperature_c": 42.437,
        "clock_mhz": 1000.0,
        "power_w": 31.0,
        "voltage_v": 0.8,
        "firmware": "18.3.0.0",
    }
    assert calls() == 0


def test_tt_smi_runs_between_chunks_only_and_while_no_chip_of_the_host_is_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smi, calls = counting(tmp_path, monkeypatch)
    chip = Chip(0, "wormhole", "n300")
    busy = driver(tmp_path / "busy", 0, {"device/device": "0x401e\n"}, pids="4711\n")
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


@pytest.mark.parametrize(
    "requested", ["1", "ttnn:1", "wormhole:1", "0100018611902010", "0000:02:00.0"]
)
def test_a_chip_may_be_named_in_every_way(tmp_path: Path, requested: str) -> None:
    device = discovery.claim(
        "ttnn", requested, tmp_path, host="lab-1", arch="x", board="y", chips=CHIPS
    )
    try:
        assert (device.name, device.queue, device.environment) == (
            "wormhole:1",
            "ttnn.wormhole.n150",
            {"TT_VISIBLE_DEVICES": "1"},
        )
        assert device.facts["serial"] == "0100018611902010"
    finally:
        os.close(device.claim)


def test_executors_share_a_chip_but_two_workers_of_one_do_not(tmp_path: Path) -> None:
    first = discovery.claim("ttnn", "0", tmp_path, host="lab-1", arch="x", board="y", chips=CHIPS)
    other = discovery.claim("gtest", "0", tmp_path, host="lab-1", arch="x", board="y", chips=CHIPS)
    try:
        assert first.identity == other.identity
        with pytest.raises(InfrastructureError, match="another worker"):
            discovery.claim("ttnn", "0", tmp_path, host="lab-1", arch="x", board="y", chips=CHIPS)
        with pytest.raises(FieldError, match=r"0 \(wormhole:0, 010001451170801d, 0000:01:00.0\)"):
            discovery.claim("ttnn", "7", tmp_path, host="lab-1", arch="x", board="y", chips=CHIPS)
    finally:
        os.close(first.claim)
        os.close(other.claim)


def test_without_chips_and_for_other_executors_a_device_is_virtual(tmp_path: Path) -> None:
    simulated = discovery.claim("ttnn", "0", tmp_path, host="lab-1", arch="wormhole", board="n150")
    emulated = discovery.claim(
        "emulator", "1", tmp_path, host="lab-1", arch="wormhole", board="n150", chips=CHIPS
    )
    plugin = discovery.claim(
        "mine", "wormhole:1", tmp_path, host="lab-1", arch="wormhole", board="n150", chips=CHIPS
    )
    try:
        assert [device.name for device in (simulated, emulated, plugin)] == [
            "ttnn:0",
            "emulator:1",
            "wormhole:1",
        ]
        assert simulated.environment == emulated.environment == {}
    finally:
        for device in (simulated, emulated, plugin):
            os.close(device.claim)


def test_a_chip_is_called_by_its_own_names_only() -> None:
    chip = Chip(0, "wormhole")
    assert chip.called("0")
    assert not chip.called("")
    assert not chip.called("none")

"""The chips of this host and their telemetry as `tt-smi -s` tells them (JSON).

The fields are those of tt-smi's snapshot (github.com/tenstorrent/tt-smi, tests/test_snapshot.py):
`device_info` with one entry per chip, each with board_info, telemetry and firmwares, all of them
strings; `host_info.Driver`. The second chip of an n300 is behind the first and has no PCI address
("N/A"). It is not a separate device, because a process that opens the board has both.

tt-smi opens every chip of the host. A program that runs on one of them may hang, or the chip may
fault (github.com/tenstorrent/luwen/issues/137): call `snapshot` only while no chip is in use.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from gonogo.devices.boards import arch_of
from gonogo_workers.devices import programs
from gonogo_workers.devices.chip import Chip

LOOK_DEADLINE_S: Final = 60.0
"""The time limit for tt-smi, which reads every chip.

That takes long on a host with 32 chips, and a wedged chip may never answer.
"""


def snapshot(program: str, deadline_s: float) -> Any:
    """Return the output of `tt-smi -s` as JSON; None when it isn't installed or fails.

    Old versions write a file, newer ones to standard output.
    """
    path = shutil.which(program)
    if path is None:
        return None
    with tempfile.TemporaryDirectory(prefix="gonogo-smi-") as folder:
        file = Path(folder) / "snapshot.json"
        done = programs.run(
            [path, "-s", "-f", str(file)],
            deadline_s,
            whole=True,
            environment={"HOME": folder, "NO_COLOR": "1"},
            trusted=True,
        )
        texts = [file.read_text("utf-8", "replace")] if file.exists() else []
    for text in (*texts, done.output):
        begin = text.find("{")
        if begin >= 0:
            try:
                return json.JSONDecoder().raw_decode(text[begin:])[0]
            except ValueError:
                continue
    return None


def parse_snapshot(snapshot: object) -> tuple[Chip, ...]:
    """Return the chips of a `tt-smi -s` snapshot, by index.

    Anything but a snapshot has no chips; a chip without a board type is left out.
    """
    driver = _text(_mapping(_mapping(snapshot).get("host_info")).get("Driver"))
    chips = []
    for entry in _local(snapshot):
        board_info = _mapping(entry.get("board_info"))
        board = (_text(board_info.get("board_type")) or "").removesuffix(" L").lower()
        arch = arch_of(board)
        if arch is None:
            continue
        firmware = {
            key: version
            for key, value in _mapping(entry.get("firmwares")).items()
            if (version := _text(value)) is not None
        }
        serial = _text(board_info.get("board_id"))
        chips.append(
            Chip(
                entry["index"],
                arch,
                board,
                serial and serial.lower(),
                _text(board_info.get("bus_id")),
                firmware,
                driver,
            )
        )
    return tuple(chips)


def parse_telemetry(snapshot: object, index: int) -> dict[str, float | str]:
    """Return the telemetry of a chip; missing values are left out.

    Temperature (degrees C), clock (MHz), power (W), voltage (V), current (A) and firmware.
    """
    telemetry: dict[str, float | str] = {}
    for entry in _local(snapshot):
        if entry["index"] != index:
            continue
        values = _mapping(entry.get("telemetry"))
        for name, tool_name in _TELEMETRY.items():
            number = _number(values.get(tool_name))
            if number is not None:
                telemetry[name] = number
        firmware = _text(_mapping(entry.get("firmwares")).get("fw_bundle_version"))
        if firmware is not None:
            telemetry["firmware"] = firmware
    return telemetry


_TELEMETRY = {
    "temperature_c": "asic_temperature",
    "clock_mhz": "aiclk",
    "power_w": "power",
    "voltage_v": "voltage",
    "current_a": "current",
}


def _local(snapshot: object) -> list[dict[str, Any]]:
    """Return the entries of chips with a PCI address, each with its index among them."""
    entries = _mapping(snapshot).get("device_info")
    local_entries: list[dict[str, Any]] = []
    for item in entries if isinstance(entries, list) else []:
        entry = _mapping(item)
        if _text(_mapping(entry.get("board_info")).get("bus_id")) is not None:
            local_entries.append({**entry, "index": len(local_entries)})
    return local_entries


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str | None:
    text = (
        str(value).strip()
        if isinstance(value, str | int | float) and not isinstance(value, bool)
        else ""
    )
    return text if text and text.upper() != "N/A" else None


def _number(value: object) -> float | None:
    """Return a number from text such as " 45.2" or "45.2 / 75"."""
    match = (
        re.match(r"\s*(-?\d+(?:\.\d+)?)", str(value))
        if isinstance(value, str | int | float)
        else None
    )
    return float(match[1]) if match else None

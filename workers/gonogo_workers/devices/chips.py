"""The chips of this host and their telemetry, as reported by tt-umd and `tt-smi -s` (JSON).

The fields are those of tt-smi's snapshot (github.com/tenstorrent/tt-smi, tests/test_snapshot.py):
`device_info` with one entry per chip, each with board_info, telemetry and firmwares, all of them
strings; `host_info.Driver`. The second chip of an n300 is behind the first and has no PCI address
("N/A"). It is not a separate device, because a process that opens the board has both.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gonogo_workers.devices import programs

LOOK_DEADLINE_S = 60.0
"""The time limit for tt-smi, which reads every chip.

That takes long on a host with 32 chips, and a wedged chip may never answer.
"""
ARCHES: Mapping[str, str] = dict.fromkeys(("n150", "n300", "wh_"), "wormhole") | dict.fromkeys(
    ("p100", "p150", "p300", "bh_"), "blackhole"
)
"""The architecture by the beginning of tt-smi's board type."""

# Names and types are those of tt_umd's bindings. The program runs in a separate process, because a
# driver's library may crash or hang
UMD_PROGRAM = """
import json, tt_umd
found = []
for number, info in sorted(tt_umd.PCIDevice.enumerate_devices_info().items()):
    entry = {"index": number, "pci": info.pci_bdf, "arch": str(info.get_arch())}
    try:
        device = tt_umd.TTDevice.create(number)
        device.init_tt_device()
        entry["serial"] = "%016x" % device.get_board_id()
        entry["board"] = tt_umd.board_type_to_string(device.get_board_type())
    except Exception as problem:
        entry["problem"] = str(problem)
    found.append(entry)
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Chip:
    """One chip with a PCI address; unknown facts are None.

    `index` is N of /dev/tenstorrent/N.
    """

    index: int
    arch: str
    board: str | None = None
    serial: str | None = None
    pci: str | None = None
    firmware: Mapping[str, str] = field(default_factory=dict)
    driver: str | None = None
    source: str = "tt-smi"
    """The tool that reported the chip: tt-umd, tt-smi, or both."""

    @property
    def name(self) -> str:
        """The chip's name on this host for every executor, such as `wormhole:0`."""
        return f"{self.arch}:{self.index}"

    def called(self, text: str) -> bool:
        """Return whether `text` names this chip: its index, name, serial number or PCI address."""
        return text.lower() in {
            str(self.index),
            self.name,
            (self.serial or "").lower(),
            (self.pci or "").lower(),
        } - {""}


def parse_snapshot(snapshot: object) -> tuple[Chip, ...]:
    """Return the chips of a `tt-smi -s` snapshot, by index.

    Anything but a snapshot has no chips; a chip without a board type is left out.
    """
    driver = _text(_mapping(_mapping(snapshot).get("host_info")).get("Driver"))
    chips = []
    for entry in _local(snapshot):
        board_info = _mapping(entry.get("board_info"))
        board = (_text(board_info.get("board_type")) or "").removesuffix(" L").lower()
        arch = next((arch for start, arch in ARCHES.items() if board.startswith(start)), None)
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


def parse_umd(output: object) -> tuple[Chip, ...]:
    """Return the chips in UMD_PROGRAM's output."""
    chips = []
    for item in output if isinstance(output, list) else []:
        entry = _mapping(item)
        arch = re.search(r"wormhole|blackhole|grayskull", str(entry.get("arch", "")).lower())
        if isinstance(entry.get("index"), int) and arch is not None:
            board = _text(entry.get("board"))
            known = (
                board.lower()
                if board and any(board.lower().startswith(start) for start in ARCHES)
                else None
            )
            chips.append(
                Chip(
                    entry["index"],
                    arch[0],
                    known,
                    _text(entry.get("serial")),
                    _text(entry.get("pci")),
                    source="tt-umd",
                )
            )
    return tuple(chips)


def merged(first: Sequence[Chip], second: Sequence[Chip]) -> tuple[Chip, ...]:
    """Return the chips of both lists, by index.

    A chip in both (same PCI address) has the first list's facts, and the second's where that has
    none.
    """
    by_pci = {chip.pci: chip for chip in second if chip.pci}
    chips = []
    for chip in first:
        other = by_pci.pop(chip.pci, None) if chip.pci else None
        if other is not None:
            facts = {
                name: getattr(chip, name) or getattr(other, name)
                for name in ("board", "serial", "firmware", "driver")
            }
            chip = replace(chip, **facts, source=f"{chip.source}, {other.source}")
        chips.append(chip)
    known, indices = {chip.pci for chip in chips if chip.pci}, {chip.index for chip in chips}
    rest = [chip for chip in second if chip.pci not in known and chip.index not in indices]
    return tuple(sorted((*chips, *rest), key=lambda chip: chip.index))


def snapshot(program: str, deadline_s: float = LOOK_DEADLINE_S) -> Any:
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


def look(
    tt_smi: str,
    interpreters: Sequence[str] = (sys.executable,),
    deadline_s: float = LOOK_DEADLINE_S,
) -> tuple[Chip, ...]:
    """Return all chips of this host.

    `interpreters` are tried for tt_umd, which comes with a build's environment: the first one that
    has it reports.
    """
    umd_chips: tuple[Chip, ...] = ()
    for interpreter in dict.fromkeys(interpreters):
        done = programs.run([interpreter, "-c", UMD_PROGRAM], deadline_s)
        if done.ok:
            try:
                umd_chips = parse_umd(json.loads(done.output.strip().splitlines()[-1]))
            except (ValueError, IndexError):
                continue
            break
    return merged(umd_chips, parse_snapshot(snapshot(tt_smi, deadline_s)))


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

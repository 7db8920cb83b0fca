"""The chips of this host as their own tools tell them: tt-umd where it is installed, `tt-smi -s`
(JSON); and their telemetry.

The fields are those of tt-smi's snapshot (github.com/tenstorrent/tt-smi, tests/test_snapshot.py):
`device_info` with one entry per chip, each with board_info, telemetry and firmwares, all of them
texts; `host_info.Driver`. The second chip of an n300 is behind the first and has no PCI address
("N/A"): it is no device of its own, because whoever opens the board has both.
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
"""tt-smi reads every chip; on a host with 32 of them that takes its time. One that is wedged may
never answer."""
ARCHES: Mapping[str, str] = dict.fromkeys(("n150", "n300", "wh_"), "wormhole") | dict.fromkeys(
    ("p100", "p150", "p300", "bh_"), "blackhole"
)
"""Architecture by the beginning of tt-smi's board type."""

# Names and types as tt_umd's own bindings have them; run in a process of its own, because a
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
    """One chip with a PCI address. `index` is N of /dev/tenstorrent/N; facts that nobody told are
    None.
    """

    index: int
    arch: str
    board: str | None = None
    serial: str | None = None
    pci: str | None = None
    firmware: Mapping[str, str] = field(default_factory=dict)
    driver: str | None = None
    source: str = "tt-smi"
    """Who told: tt-umd, tt-smi, or both."""

    @property
    def name(self) -> str:
        """Its name on this host, whichever executor uses it, such as `wormhole:0`."""
        return f"{self.arch}:{self.index}"

    def called(self, wanted: str) -> bool:
        """Whether a person who writes `wanted` means this chip: its index, name, serial number or
        PCI address.
        """
        return wanted.lower() in {
            str(self.index),
            self.name,
            (self.serial or "").lower(),
            (self.pci or "").lower(),
        } - {""}


def parse_snapshot(snapshot: object) -> tuple[Chip, ...]:
    """The chips of a `tt-smi -s` snapshot, by index. What is no snapshot has none; a chip that says
    no board type is left out.
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
            key: said
            for key, value in _mapping(entry.get("firmwares")).items()
            if (said := _text(value)) is not None
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
    """Temperature (degrees C), clock (MHz), power (W), voltage (V), current (A) and firmware of a
    chip; what isn't told is left out.
    """
    told: dict[str, float | str] = {}
    for entry in _local(snapshot):
        if entry["index"] != index:
            continue
        values = _mapping(entry.get("telemetry"))
        for ours, theirs in _TELEMETRY.items():
            number = _number(values.get(theirs))
            if number is not None:
                told[ours] = number
        firmware = _text(_mapping(entry.get("firmwares")).get("fw_bundle_version"))
        if firmware is not None:
            told["firmware"] = firmware
    return told


_TELEMETRY = {
    "temperature_c": "asic_temperature",
    "clock_mhz": "aiclk",
    "power_w": "power",
    "voltage_v": "voltage",
    "current_a": "current",
}


def parse_umd(told: object) -> tuple[Chip, ...]:
    """The chips of UMD_PROGRAM's answer."""
    chips = []
    for each in told if isinstance(told, list) else []:
        entry = _mapping(each)
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
    """The chips of both lists, by index; of a chip in both (same PCI address) the first list's
    facts, the second's where it has none.
    """
    by_pci = {chip.pci: chip for chip in second if chip.pci}
    found = []
    for chip in first:
        other = by_pci.pop(chip.pci, None) if chip.pci else None
        if other is not None:
            told = {
                name: getattr(chip, name) or getattr(other, name)
                for name in ("board", "serial", "firmware", "driver")
            }
            chip = replace(chip, **told, source=f"{chip.source}, {other.source}")
        found.append(chip)
    known = {chip.pci for chip in found if chip.pci}
    rest = [
        chip
        for chip in second
        if chip.pci not in known and chip.index not in {each.index for each in found}
    ]
    return tuple(sorted((*found, *rest), key=lambda chip: chip.index))


def snapshot(program: str, deadline_s: float = LOOK_DEADLINE_S) -> Any:
    """What `tt-smi -s` says, as JSON; None when it isn't installed or fails. Old versions write a
    file, newer ones to standard output.
    """
    found = shutil.which(program)
    if found is None:
        return None
    with tempfile.TemporaryDirectory(prefix="gonogo-smi-") as folder:
        file = Path(folder) / "snapshot.json"
        done = programs.run(
            [found, "-s", "-f", str(file)],
            deadline_s,
            whole=True,
            environment={"HOME": folder, "NO_COLOR": "1"},
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
    """All chips of this host. `interpreters` are asked for tt_umd, which comes with a build's
    environment: the first that has it tells.
    """
    told: tuple[Chip, ...] = ()
    for interpreter in dict.fromkeys(interpreters):
        done = programs.run([interpreter, "-c", UMD_PROGRAM], deadline_s)
        if done.well:
            try:
                told = parse_umd(json.loads(done.output.strip().splitlines()[-1]))
            except (ValueError, IndexError):
                continue
            break
    return merged(told, parse_snapshot(snapshot(tt_smi, deadline_s)))


def _local(snapshot: object) -> list[dict[str, Any]]:
    """The entries of chips with a PCI address, each with its index among them."""
    entries = _mapping(snapshot).get("device_info")
    found: list[dict[str, Any]] = []
    for each in entries if isinstance(entries, list) else []:
        entry = _mapping(each)
        if _text(_mapping(entry.get("board_info")).get("bus_id")) is not None:
            found.append({**entry, "index": len(found)})
    return found


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str | None:
    said = (
        str(value).strip()
        if isinstance(value, str | int | float) and not isinstance(value, bool)
        else ""
    )
    return said if said and said.upper() != "N/A" else None


def _number(value: object) -> float | None:
    """A number out of a text such as " 45.2" or "45.2 / 75"."""
    match = (
        re.match(r"\s*(-?\d+(?:\.\d+)?)", str(value))
        if isinstance(value, str | int | float)
        else None
    )
    return float(match[1]) if match else None

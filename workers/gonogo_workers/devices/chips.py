"""The chips of this host: as the kernel driver lists them, else as tt-umd and tt-smi do.

tt-umd and tt-smi open the chips, which may disturb a program that runs on one. So they are asked
only for what the driver does not tell, and only while no process has a chip open.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gonogo.devices.boards import arch_of
from gonogo_workers.devices import driver, programs, tt_smi
from gonogo_workers.devices.chip import Chip

log = logging.getLogger(__name__)

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


def parse_umd(output: object) -> tuple[Chip, ...]:
    """Return the chips in UMD_PROGRAM's output."""
    chips = []
    for item in output if isinstance(output, list) else []:
        entry = _mapping(item)
        arch = re.search(r"wormhole|blackhole|grayskull", str(entry.get("arch", "")).lower())
        if isinstance(entry.get("index"), int) and arch is not None:
            board = _text(entry.get("board"))
            known = board.lower() if board and arch_of(board.lower()) else None
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


def look(
    program: str,
    interpreters: Sequence[str] = (sys.executable,),
    deadline_s: float = tt_smi.LOOK_DEADLINE_S,
    kernel: driver.Driver = driver.HERE,
) -> tuple[Chip, ...]:
    """Return all chips of this host.

    program: tt-smi, by name or path. interpreters: are tried for tt_umd, which comes with a build's
    environment; the first one that has it reports. kernel: the files of the kernel's driver.
    """
    listed = kernel.chips()
    if listed and all(chip.board and chip.serial for chip in listed):
        return listed
    users = {chip.name: pids for chip in listed if (pids := kernel.users(chip.index))}
    if users:
        log.warning(
            "the driver does not tell the board and the serial number of every chip, and tt-smi "
            "may not be asked now: processes use %s",
            ", ".join(f"{name} ({', '.join(map(str, pids))})" for name, pids in users.items()),
        )
        return listed
    return merged(merged(listed, _of_umd(interpreters, deadline_s)), _of_smi(program, deadline_s))


def _of_umd(interpreters: Sequence[str], deadline_s: float) -> tuple[Chip, ...]:
    for interpreter in dict.fromkeys(interpreters):
        done = programs.run([interpreter, "-c", UMD_PROGRAM], deadline_s)
        if done.ok:
            try:
                return parse_umd(json.loads(done.output.strip().splitlines()[-1]))
            except (ValueError, IndexError):
                continue
    return ()


def _of_smi(program: str, deadline_s: float) -> tuple[Chip, ...]:
    return tt_smi.parse_snapshot(tt_smi.snapshot(program, deadline_s))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str | None:
    return value.strip() or None if isinstance(value, str) else None

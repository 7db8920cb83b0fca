"""The chips of this host: as the kernel driver lists them, else as tt-smi does.

tt-smi opens the chips, which may disturb a program that runs on one. So it is asked only for what
the driver does not tell, and only while no process has a chip open.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from gonogo_workers.devices import driver, tt_smi
from gonogo_workers.devices.chip import Chip

log = logging.getLogger(__name__)


def merged(first: Sequence[Chip], second: Sequence[Chip]) -> tuple[Chip, ...]:
    """Return the chips of both lists, by index.

    A chip in both (same PCI address) has the first list's facts, and the second's where that has
    none.
    """
    by_pci = {chip.pci: chip for chip in second if chip.pci}
    chips = []
    for chip in first:
        other = by_pci.get(chip.pci) if chip.pci else None
        if other is not None:
            names = ("board", "serial", "firmware", "driver")
            facts = {name: getattr(chip, name) or getattr(other, name) for name in names}
            chip = replace(chip, **facts, source=f"{chip.source}, {other.source}")
        chips.append(chip)
    known, indices = {chip.pci for chip in chips if chip.pci}, {chip.index for chip in chips}
    rest = [chip for chip in second if chip.pci not in known and chip.index not in indices]
    return tuple(sorted((*chips, *rest), key=lambda chip: chip.index))


def look(
    program: str,
    deadline_s: float = tt_smi.LOOK_DEADLINE_S,
    kernel: driver.Driver = driver.HERE,
) -> tuple[Chip, ...]:
    """Return all chips of this host.

    program: tt-smi, by name or path. kernel: the files of the kernel's driver.
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
    return merged(listed, tt_smi.parse_snapshot(tt_smi.snapshot(program, deadline_s)))

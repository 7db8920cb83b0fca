"""The chips of this host and their telemetry as files of the kernel driver (tt-kmd) tell them.

Reading these files opens no chip, so it disturbs no program that runs on one. The files are those
of tt-kmd's docs/sysfs-attributes.md, of its hwmon device and of /proc/driver/tenstorrent; older
drivers have fewer of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from gonogo.devices.boards import arch_of
from gonogo_workers.devices.chip import Chip

PCI_ARCHES: Final[Mapping[int, str]] = {0x401E: "wormhole", 0xB140: "blackhole"}
"""The architecture by the PCI device number."""


class Sensor(NamedTuple):
    """One number of a chip: where it is, its unit there, and what a working chip can report."""

    file: str
    unit: float
    least: float
    most: float


SENSORS: Final[Mapping[str, Sensor]] = {
    "temperature_c": Sensor("device/hwmon/hwmon*/temp1_input", 1e-3, -60, 200),
    "clock_mhz": Sensor("tt_aiclk", 1, 0, 10_000),
    "power_w": Sensor("device/hwmon/hwmon*/power1_input", 1e-6, 0, 5_000),
    "voltage_v": Sensor("device/hwmon/hwmon*/in0_input", 1e-3, 0, 20),
    "current_a": Sensor("device/hwmon/hwmon*/curr1_input", 1e-3, 0, 5_000),
}
"""A chip that fell off the bus reads as all ones: a number outside of these limits is left out."""
FIRMWARES: Final[Mapping[str, str]] = {
    "fw_bundle_version": "tt_fw_bundle_ver",
    "arc_fw": "tt_arc_fw_ver",
    "eth_fw": "tt_eth_fw_ver",
    "m3_app_fw": "tt_m3app_fw_ver",
    "m3_bl_fw": "tt_m3bl_fw_ver",
    "tt_flash_version": "tt_ttflash_ver",
}


@dataclass(frozen=True)
class Driver:
    """The kernel driver's files below `root`."""

    root: Path = Path("/")

    def chips(self) -> tuple[Chip, ...]:
        """Return the chips that the driver has, by index; () without a driver."""
        driver = _text(self.root / "sys/module/tenstorrent/version")
        listed = []
        for folder in sorted((self.root / "sys/class/tenstorrent").glob("tenstorrent!*")):
            number = folder.name.partition("!")[2]
            board = (_text(folder / "tt_card_type") or "").lower() or None
            arch = arch_of(board or "") or _pci_arch(folder)
            if not number.isdecimal() or arch is None:
                continue
            firmware = {
                name: version
                for name, file in FIRMWARES.items()
                if (version := _text(folder / file)) is not None
            }
            listed.append(
                Chip(
                    int(number),
                    arch,
                    board,
                    (_text(folder / "tt_serial") or "").lower().removeprefix("0x") or None,
                    _pci_address(folder),
                    firmware,
                    driver and f"TT-KMD {driver}",
                    source="driver",
                )
            )
        return tuple(sorted(listed, key=lambda chip: chip.index))

    def telemetry(self, index: int) -> dict[str, float | str]:
        """Return the telemetry of a chip; values that the driver does not tell are left out.

        Temperature (degrees C), clock (MHz), power (W), voltage (V), current (A) and firmware.
        """
        folder = self._folder(index)
        values: dict[str, float | str] = {}
        for name, sensor in SENSORS.items():
            for path in folder.glob(sensor.file):
                with suppress(ValueError, TypeError):
                    value = float(_text(path) or "") * sensor.unit
                    if sensor.least <= value <= sensor.most:
                        values[name] = round(value, 6)
        firmware = _text(folder / FIRMWARES["fw_bundle_version"])
        return values | {"firmware": firmware} if values and firmware is not None else values

    def users(self, index: int) -> tuple[int, ...]:
        """Return the processes that have a chip open; () where the driver does not tell."""
        pids = _text(self.root / f"proc/driver/tenstorrent/{index}/pids") or ""
        return tuple(int(pid) for pid in pids.split() if pid.isdecimal())

    def _folder(self, index: int) -> Path:
        return self.root / f"sys/class/tenstorrent/tenstorrent!{index}"


HERE: Final = Driver()
"""The driver of this machine."""


def _pci_address(folder: Path) -> str | None:
    """Return the PCI address: the name of the folder to which `device` points."""
    with suppress(OSError):
        name = (folder / "device").resolve().name
        return name if re.fullmatch(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.\d", name) else None
    return None


def _pci_arch(folder: Path) -> str | None:
    with suppress(ValueError):
        return PCI_ARCHES.get(int(_text(folder / "device/device") or "", 16))
    return None


def _text(path: Path) -> str | None:
    """Return a file's text; None where there is none, or the chip does not answer."""
    try:
        return path.read_text("utf-8", "replace").strip() or None
    except OSError:
        return None

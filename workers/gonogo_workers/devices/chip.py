"""One chip of this host: its index, architecture, board, serial number and firmware."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


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
    """The tools that reported the chip: the driver, tt-smi."""

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

"""The boards that GoNoGo knows by name, and the architecture of their chips."""

from __future__ import annotations

from collections.abc import Mapping

_CARDS = {"wormhole": ("n150", "n300"), "blackhole": ("p100", "p150", "p300")}
"""The cards that are sold, by the architecture of their chips; a name may go on: `p150b`."""
BOARDS: tuple[str, ...] = tuple(card for cards in _CARDS.values() for card in cards)
_PREFIXES: Mapping[str, str] = {card: arch for arch, cards in _CARDS.items() for card in cards} | {
    "wh_": "wormhole",
    "bh_": "blackhole",
}
"""The architecture by the beginning of a board's name."""
ARCHES: tuple[str, ...] = tuple(_CARDS)


def arch_of(board: str) -> str | None:
    """Return the architecture of a board such as `n150`; None for an unknown one."""
    return next((arch for start, arch in _PREFIXES.items() if board.startswith(start)), None)

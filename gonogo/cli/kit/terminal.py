"""The terminal: names, errors and logs of others are shown, and can't command it."""

from __future__ import annotations

import re
from typing import Final

_COMMANDS: Final = re.compile(
    # control characters but line ends and tabs, and what turns the direction of writing
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]"
)
_PICTURES: Final = 0x2400
"""Unicode has a picture of each of the first 32 characters here: of escape "␛"."""


def plain(text: str) -> str:
    """Return the text with a picture, or "�", for each character that commands a terminal."""
    return _COMMANDS.sub(lambda match: _picture(match[0]), text)


def _picture(character: str) -> str:
    return chr(_PICTURES + ord(character)) if character < " " else "�"

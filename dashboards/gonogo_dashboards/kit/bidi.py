"""Protection against text that reorders the words beside it.

Browsers order the letters of a line by the Unicode Bidirectional Algorithm (UAX #9). A control
character in a name, such as U+202E, reorders the rest of the line, so it is shown as its escape. A
name of right-to-left letters pulls the punctuation and the numbers beside it along, so it stands
between U+2068 and U+2069, which isolate it. Values that go back to the server or into a shell stay
unchanged: templates use `exact` for them.
"""

from __future__ import annotations

import re
from typing import Any

from markupsafe import Markup, escape

_CONTROLS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_RIGHT_TO_LEFT = re.compile(
    "[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]"
)
ISOLATE, POP = "\u2068", "\u2069"


def contained(value: Any) -> Any:
    """Return a value as a template prints it: text that could reorder its neighbors is contained.

    Everything that isn't such text stays as it is.
    """
    if type(value) is not str or value.isascii():  # markup has been through here before
        return value
    text = _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", value)
    return f"{ISOLATE}{text}{POP}" if _RIGHT_TO_LEFT.search(text) else text


def exact(value: Any) -> Markup:
    """Return a value unchanged but escaped, for fields that are sent and lines that are copied."""
    return escape(value)

"""Text of others among ours: a name written from right to left, or one that turns what follows it,
must not change the words beside it.

Browsers order the letters of a line by the Unicode Bidirectional Algorithm (UAX #9). A control
character in a name, as U+202E, turns all that follows on the line, ours too; so it is shown as what
it is. A name of right-to-left letters takes the punctuation and the numbers beside it along; so it
stands between U+2068 and U+2069, which isolate it. Nothing is changed where a value goes back to
the server or into a shell: `exact` there.
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
    """What a template prints of a value: a text that could turn its neighbours can't any more;
    everything else as it is.
    """
    if type(value) is not str or value.isascii():  # markup has been through here before
        return value
    text = _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", value)
    return f"{ISOLATE}{text}{POP}" if _RIGHT_TO_LEFT.search(text) else text


def exact(value: Any) -> Markup:
    """A value to the letter, for fields that are sent and lines that are copied."""
    return escape(value)

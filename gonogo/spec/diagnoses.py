"""What a diagnosis may say beside its seed's verdict. Plain JSON in and out: the API and the pages
need no numbers for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gonogo.spec.verdicts import Explanation

RIGHT = "no term is wrong"
"""The words of a kernel in which every term that can be told is right, and all can be told."""
PARTLY = "no term that can be told is wrong"
"""The same where some can't be told; why not follows."""
NOT_FOUND = "rounding does not explain the error, and no term that these data can tell does: cannot tell what is wrong"
AT_THE_EDGE = "no term stands out; the error is at the edge of what rounding explains"


def beside(content: Mapping[str, Any], explanation: str | None) -> dict[str, Any]:
    """The diagnosis of a seed that was judged: it must not call right what rounding doesn't
    explain.
    """
    found = dict(content)
    parts = str(found.get("words") or "").split("; ")
    rest = [part for part in parts if part not in (RIGHT, PARTLY)]
    if rest == parts:  # it claims nothing to be right
        return found
    if explanation == Explanation.unexplained:
        found |= {"words": "; ".join([NOT_FOUND, *rest]), "can_tell": False}
    elif explanation == Explanation.suspect:
        found["words"] = "; ".join([AT_THE_EDGE, *rest])
    return found

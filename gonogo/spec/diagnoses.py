"""The wording of a diagnosis that is shown with its seed's verdict.

It reads and returns plain JSON: the API and the pages need no numbers for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gonogo.spec.verdicts import Explanation

RIGHT = "no term is wrong"
"""The words for a kernel in which every term can be judged and is right."""
PARTLY = "no term that can be judged is wrong"
"""The words for a kernel in which some terms can't be judged; the reasons follow."""
NOT_FOUND = (
    "rounding does not explain the error, and neither does any term that can be judged:"
    " cannot tell what is wrong"
)
AT_THE_EDGE = "no term stands out; the error is at the edge of what rounding explains"


def consistent_diagnosis(content: Mapping[str, Any], explanation: str | None) -> dict[str, Any]:
    """Return the diagnosis of a seed, made consistent with the seed's explanation.

    It must not call a kernel right if rounding doesn't explain its error.
    """
    diagnosis = dict(content)
    parts = str(diagnosis.get("words") or "").split("; ")
    rest = [part for part in parts if part not in (RIGHT, PARTLY)]
    if rest == parts:  # it doesn't call anything right
        return diagnosis
    if explanation == Explanation.unexplained:
        diagnosis |= {"words": "; ".join([NOT_FOUND, *rest]), "can_tell": False}
    elif explanation == Explanation.suspect:
        diagnosis["words"] = "; ".join([AT_THE_EDGE, *rest])
    return diagnosis

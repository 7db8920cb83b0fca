"""The wording of a diagnosis that is shown with its seed's verdict.

It reads and returns plain JSON: the API and the pages need no numbers for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gonogo.numerics.diagnosis import PRECISION
from gonogo.numerics.diagnosis import DiagnosedTerm as DiagnosedTerm
from gonogo.spec.stages import JobStages
from gonogo.spec.verdicts import Explanation, Verdict

RIGHT = "no term is wrong"
"""The words for a kernel in which every term can be judged and is right."""
PARTLY = "no term that can be judged is wrong"
"""The words for a kernel in which some terms can't be judged; the reasons follow."""
NOT_FOUND = (
    "rounding does not explain the error, and neither does any term that can be judged:"
    " cannot tell what is wrong"
)
SO_FAR = "more seeds decide; so far"
"""The words before a fault that explains most of an error which may still be chance."""
AT_THE_EDGE = "no term stands out; the error is at the edge of what rounding explains"


@dataclass(frozen=True, kw_only=True)
class JobDiagnosis:
    """The diagnosis of a job: that of its most telling seed, and the stages of a staged suite.

    Without a diagnosed seed there are no terms.
    """

    seed: int | None = None
    repeat: int | None = None
    verdict: Verdict | None = None
    explanation: Explanation | None = None
    """Whether rounding explains the seed's error"""
    words: str | None = None
    can_tell: bool | None = None
    terms: list[DiagnosedTerm] = field(default_factory=list)
    faults: dict[str, str] = field(default_factory=dict)
    """The fault of each wrong output that exact inputs or the replay show"""
    residuals: dict[str, dict[str, float | None]] = field(default_factory=dict)
    """By output: the rms error `before` and `after` the wrong terms are taken away, in units of its
    rounding, and the shares of its energy along the terms' directions"""
    stages: JobStages | None = None
    """For a staged suite: all iterations, with blocker and regressions"""


def consistent_diagnosis(
    content: Mapping[str, Any],
    explanation: str | None,
    outputs: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """Return the diagnosis of a seed, made consistent with the seed's verdict and statistics.

    It must not call a kernel right if rounding doesn't explain its error, and must name no cause if
    rounding does: a term by tiles may differ by rounding alone, as on exact inputs.

    What exact inputs and the replay show of the outputs (output -> statistics) comes first: the
    terms by tiles are measured with a Wormhole's budget, and may take the fault of another kernel
    for a different one.
    """
    diagnosis = dict(content)
    if explanation == Explanation.explained:
        return _acquitted(diagnosis)
    if diagnosis.get("faults"):  # it is one already, of several tests
        return diagnosis
    diagnosis = without_precision(diagnosis, outputs or {})
    shown = faults(outputs or {})
    if shown and explanation in (Explanation.unexplained, Explanation.suspect):
        words = [f"{output}: {fault}" for output, fault in shown.items()]
        if explanation == Explanation.suspect:
            words[0] = f"{SO_FAR} {words[0]}"
        if adds(diagnosis.get("terms") or (), shown):
            words.append(str(diagnosis["words"]))
        return diagnosis | {"words": "; ".join(words), "can_tell": True, "faults": shown}
    parts = str(diagnosis.get("words") or "").split("; ")
    rest = [part for part in parts if part not in (RIGHT, PARTLY)]
    if rest == parts:  # it doesn't call anything right
        return diagnosis
    if explanation == Explanation.unexplained:
        diagnosis |= {"words": "; ".join([NOT_FOUND, *rest]), "can_tell": False}
    elif explanation == Explanation.suspect:
        diagnosis["words"] = "; ".join([AT_THE_EDGE, *rest])
    return diagnosis


def _acquitted(diagnosis: Mapping[str, Any]) -> dict[str, Any]:
    """Return the diagnosis of a seed that rounding explains: its terms accuse nothing."""
    terms = [
        {**term, "wrong": False, "words": ""} if term.get("wrong") else term
        for term in diagnosis.get("terms") or ()
    ]
    words = str(diagnosis.get("words") or "")
    if not {RIGHT, PARTLY} & set(words.split("; ")):
        words = RIGHT if all(term.get("can_tell", True) for term in terms) else PARTLY
    return {**diagnosis, "terms": terms, "words": words, "faults": {}, "residuals": {}}


def without_precision(
    diagnosis: Mapping[str, Any], outputs: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Return a diagnosis that calls no error one of precision where no program reproduces it.

    Errors without a pattern may be a fault's, too: it takes an arithmetic that makes them.

    outputs: output -> its statistics; one that wasn't replayed keeps its words.
    """
    unproven = {
        name
        for name, statistics in outputs.items()
        if "nearest_arithmetic" in statistics
        and not (statistics.get("arithmetic") or statistics.get("reproduced_by"))
    }
    terms, words = list(diagnosis.get("terms") or ()), str(diagnosis.get("words") or "")
    for place, term in enumerate(terms):
        known = str(term.get("words") or "")
        if PRECISION in known and term["output"] in unproven:
            shorter = known.replace(PRECISION, "")
            words = words.replace(known, shorter)
            terms[place] = {**term, "words": shorter}
    return {**diagnosis, "terms": terms, "words": words} if unproven else dict(diagnosis)


def faults(outputs: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return what exact inputs, else the replay, show of each wrong output (output -> words)."""
    shown: dict[str, str] = {}
    for output, statistics in outputs.items():
        reading = statistics.get("exact") or {}
        if reading.get("mismatches") and reading.get("words"):
            shown[output] = str(reading["words"])
        elif statistics.get("fault"):
            shown[output] = str(statistics["fault"])
    return shown


def adds(terms: Sequence[Mapping[str, Any]], shown: Mapping[str, str]) -> bool:
    """Return whether a diagnosis by tiles says more of the faults that are shown already.

    It does where it says in which tiles the same term is wrong, or names an output about which
    nothing is shown.
    """
    wrong = [term for term in terms if term["wrong"]]
    return bool(wrong) and all(
        term["output"] not in shown
        or (term["name"] in shown[term["output"]] and (term.get("tiles") or 0) > 1)
        for term in wrong
    )

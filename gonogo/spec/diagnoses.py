"""The diagnosis of a seed: what is wrong, in words, from its stored outputs.

It reads and returns plain JSON: the API and the pages need no numbers for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gonogo.spec.stages import JobStages
from gonogo.spec.verdicts import Explanation, Verdict

READ = ("exact", "fault", "reason", "places")
"""The statistics of an output that a diagnosis reads, besides its explanation."""
SO_FAR = "more seeds decide; so far"
"""The words before what is said of an error which may still be chance."""
_OPEN = (Explanation.unexplained, Explanation.suspect, Explanation.inconclusive)


@dataclass(frozen=True, kw_only=True)
class JobDiagnosis:
    """The diagnosis of a job: that of its most telling seed, and the stages of a staged suite."""

    seed: int | None = None
    repeat: int | None = None
    verdict: Verdict | None = None
    explanation: Explanation | None = None
    """Whether rounding explains the seed's error"""
    words: str | None = None
    can_tell: bool | None = None
    """Whether the fault of an output is named"""
    faults: dict[str, str] = field(default_factory=dict)
    """The fault of each wrong output for which one is named"""
    stages: JobStages | None = None
    """For a staged suite: all iterations, with blocker and regressions"""


def diagnosis_of(outputs: Mapping[str, Mapping[str, Any]]) -> JobDiagnosis | None:
    """Return the diagnosis of a seed's outputs (output -> entry); None: there is nothing to say.

    Each output that rounding doesn't explain has a sentence; those of exact inputs come first.
    """
    exact = sorted(outputs, key=lambda name: not _exact(outputs[name]))
    sentences = {name: sentence_of(outputs[name]) for name in exact}
    words = [f"{name}: {sentence}" for name, sentence in sentences.items() if sentence]
    if not words:
        return None
    faults = {name: fault for name in exact if (fault := _fault(outputs[name]))}
    return JobDiagnosis(words="; ".join(words), can_tell=bool(faults), faults=faults)


def sentence_of(entry: Mapping[str, Any]) -> str:
    """Return a sentence on the fault of an output; "" where it is explained, or nothing is known.

    It is what exact inputs show, else the fault that is named, else the reason and the places.
    """
    if entry.get("explanation") not in _OPEN:
        return ""
    parts = (entry.get("reason"), str(entry.get("places") or "").removesuffix("."))
    sentence = _exact(entry) or entry.get("fault") or "; ".join(filter(None, parts))
    if sentence and entry["explanation"] == Explanation.suspect:
        return f"{SO_FAR} {sentence}"
    return str(sentence)


def _exact(entry: Mapping[str, Any]) -> str:
    """Return the sentence that exact inputs give of a wrong output."""
    exact = entry.get("exact") or {}
    return str(exact["words"]) if exact.get("mismatches") else ""


def _fault(entry: Mapping[str, Any]) -> str:
    """Return the sentence of the fault of a wrong output; "" where none is named."""
    if entry.get("explanation") not in _OPEN:
        return ""
    named_by_exact = (entry.get("exact") or {}).get("fault") is not None
    return (_exact(entry) if named_by_exact else "") or str(entry.get("fault") or "")

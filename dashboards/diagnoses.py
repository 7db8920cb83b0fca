"""A job's diagnosis as its page shows it: the words, a coefficient per tile for every term, and the stages of a staged suite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from dashboards import stages
from dashboards.stages import StagesView
from storage import evidence
from storage.jobs import Job

MAX_TERMS = 12


@dataclass(frozen=True)
class TermView:
    """One term of an output; one coefficient (1 = used once, as it should be) and standard error per group of tiles, None = not known."""

    output: str
    name: str
    words: str
    wrong: bool
    can_tell: bool
    tiles: int
    group: int
    unit: str
    coefficients: tuple[float | None, ...]
    errors: tuple[float | None, ...]


@dataclass(frozen=True)
class DiagnosisView:
    """The diagnosis of a job, from its worst seed that has one."""

    words: str
    can_tell: bool
    seed: int | None
    terms: tuple[TermView, ...]
    stages: StagesView | None = None


def read(session: Session, job: Job) -> DiagnosisView | None:
    """The job's diagnosis: what was stored when it closed, before that the one of its worst seed so far; None without any."""
    found = job.diagnosis or (evidence.diagnosis(session, job.id) if job.done else None)
    return None if found is None else view(found)


def view(content: Mapping[str, Any]) -> DiagnosisView:
    """From the JSON of a diagnosis; wrong terms first, terms without any coefficient left out."""
    terms = [_term(term) for term in content.get("terms", ()) if any(value is not None for value in term.get("coefficients", ()))]
    ordered = sorted(terms, key=lambda term: not term.wrong)
    seed = content.get("seed")
    return DiagnosisView(
        str(content.get("words") or ""),
        bool(content.get("can_tell", True)),
        seed if isinstance(seed, int) else None,
        tuple(ordered[:MAX_TERMS]),
        stages.view(content.get("stages")),
    )


def _term(term: Mapping[str, Any]) -> TermView:
    return TermView(
        output=str(term.get("output", "")),
        name=str(term.get("name", "")),
        words=str(term.get("words") or ""),
        wrong=bool(term.get("wrong", False)),
        can_tell=bool(term.get("can_tell", True)),
        tiles=int(term.get("tiles", 0)),
        group=max(1, int(term.get("group", 1))),
        unit=str(term.get("unit") or "tile"),
        coefficients=_numbers(term.get("coefficients", ())),
        errors=_numbers(term.get("errors", ())),
    )


def _numbers(values: Sequence[float | None]) -> tuple[float | None, ...]:
    return tuple(None if value is None else float(value) for value in values)

"""Suspect seeds of a job: one raises no flag; it adds seeds to its job, and what all of them say
together decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.sequential import more_for_suspects
from gonogo.flakiness.suspects import pooled, settled
from gonogo.spec.selections import KERNEL
from gonogo.spec.verdicts import POLICY as VERDICTS
from gonogo.spec.verdicts import Explanation, Verdict, evidence, worst_explanation
from gonogo_storage.db.states import FlagKind
from gonogo_storage.flags.evidence import check_line
from gonogo_storage.flags.flags import Finding
from gonogo_storage.seeds.results import COLUMNS
from gonogo_storage.tables import JobRow, SeedResultRow, TestSpecRow

MAX_SEED = 2**53 - 1
NAMED = 8
"""Suspect seeds that are named one by one."""
MOST_POOLED = 1000
"""Seeds whose statistics are pooled: the last ones, with those that were added. More would hold the
job's lock for long and say no more."""
_LOST = (Verdict.error, Verdict.crash, Verdict.hang)
_MEANS = {
    Explanation.explained: "rounding explains them together: it was chance",
    Explanation.suspect: "together they are still at the edge of what rounding explains: no finding, and no all-clear",
    Explanation.unexplained: "rounding does not explain them together",
}
_SETTLED = {
    (Verdict.suspect, Explanation.explained): Verdict.pass_,
    (Verdict.suspect, Explanation.unexplained): Verdict.pass_by_tolerance,
    (Verdict.fail, Explanation.explained): Verdict.fail_by_tolerance,
    (Verdict.fail, Explanation.unexplained): Verdict.fail,
}
"""What becomes of a suspect seed's verdict once all seeds together are explained or unexplained."""
_FLAGS = {
    Verdict.pass_by_tolerance: (
        FlagKind.passes_by_tolerance,
        "Green only because the tolerance is loose: rounding does not explain the errors of many seeds together.",
    ),
    Verdict.fail_by_tolerance: (
        FlagKind.tolerance_too_tight,
        "Red though right: rounding explains the errors of many seeds together, the tolerance is tighter than the formats allow.",
    ),
}


def consider(session: Session, job: JobRow) -> list[int]:
    """The seeds to add to a job whose chunks are all closed, none when nothing hangs on its suspect
    seeds (any more).

    Only jobs that name their seeds by a range or a limit get any: who lists seeds wants those. None
    for selections, whose tests bring gates of their own, and for comparisons of two builds, which
    raise no flags. None where some seed is unexplained or gave no numbers: the verdict is settled
    then.
    """
    told = job.suspects
    if told is None and not _eligible(job):
        return []
    suspect, unexplained = (
        _seeds(session, job, Explanation.suspect),
        _seeds(session, job, Explanation.unexplained),
    )
    if told is None:
        if not suspect or unexplained:
            return []
        told = {
            "seeds": [],
            "count": 0,
            "rounds": 0,
            "added": [],
            "explanation": None,
            "pooled": None,
            "words": "",
        }
    else:
        told = {**told, **_judged(session, job, told, suspect, unexplained)}
    told |= {"seeds": suspect[:NAMED], "count": len(suspect), "policy": POLICY.version}
    more: list[int] = []
    if told["explanation"] in (None, Explanation.suspect) and not any(
        job.counts.get(each) for each in _LOST
    ):
        more = _free(session, job, more_for_suspects(len(suspect), told["rounds"], POLICY))
    if more:
        words = f"{len(more)} seeds added: {_named(suspect)}"
        told |= {
            "rounds": told["rounds"] + 1,
            "added": [*told["added"], *more],
            "words": words,
            "explanation": None,
            "pooled": None,
        }
    job.suspects = told
    return more


def verdicts(session: Session, job: JobRow) -> set[Verdict]:
    """The verdicts whose worst is the job's: those of its seeds, the suspect ones as what all seeds
    together say.
    """
    explanation = (job.suspects or {}).get("explanation")
    if explanation in (None, Explanation.suspect):
        return {Verdict(name) for name, seeds in job.counts.items() if seeds}
    table = SeedResultRow
    query = (
        select(table.seed_verdict, table.seed_explanation).where(table.job_id == job.id).distinct()
    )
    return {
        _as(Verdict(verdict), said, Explanation(explanation))
        for verdict, said in session.execute(query)
    }


def counts(
    session: Session, job_id: str, told: Mapping[str, int], together: Explanation
) -> dict[str, int]:
    """A job's counters with its suspect seeds counted as what all seeds together say: explained or
    unexplained.
    """
    table = SeedResultRow
    each = select(table.seed, table.repeat, table.seed_verdict.label("said")).where(
        table.job_id == job_id
    )
    seeds = each.where(table.seed_explanation == Explanation.suspect.value).distinct().subquery()
    found = dict(told)
    for said, number in session.execute(select(seeds.c.said, func.count()).group_by(seeds.c.said)):
        settled_as = _SETTLED.get((Verdict(said), together), Verdict(said))
        found[said] = found.get(said, 0) - number
        found[settled_as.value] = found.get(settled_as.value, 0) + number
    return {verdict: number for verdict, number in found.items() if number > 0}


def findings(session: Session, job: JobRow) -> list[Finding]:
    """The flags that the pooled statistics call for, with them as evidence, where no seed alone
    calls for the same.
    """
    told = job.suspects or {}
    if not told.get("pooled") or told["explanation"] == Explanation.suspect:
        return []
    said = {
        _as(Verdict(name), Explanation.suspect, Explanation(told["explanation"]))
        for name in _verdicts_of_suspects(session, job)
    }
    return [
        _finding(session, job, verdict)
        for verdict in _FLAGS
        if verdict in said and not job.counts.get(verdict)
    ]


def _eligible(job: JobRow) -> bool:
    named = isinstance(job.request.get("seeds"), Mapping)
    hangs_on_it = job.counts.get(Verdict.suspect) or job.counts.get(Verdict.fail)
    return bool(named and hangs_on_it and job.reference is None and job.kernel != KERNEL)


def _as(verdict: Verdict, said: str | None, together: Explanation) -> Verdict:
    return _SETTLED.get((verdict, together), verdict) if said == Explanation.suspect else verdict


def _judged(
    session: Session,
    job: JobRow,
    told: Mapping[str, Any],
    suspect: Sequence[int],
    unexplained: Sequence[int],
) -> dict[str, Any]:
    """What is known after a round: a new seed that is unexplained by itself, or what the statistics
    of all say together.
    """
    asked = f"{_named(suspect)}; {len(told['added'])} seeds were added"
    if unexplained:
        by_itself = f"seed {unexplained[0]} is unexplained by itself"
        return {
            "explanation": Explanation.unexplained.value,
            "pooled": None,
            "words": f"{asked}: {by_itself}",
        }
    outputs = {name: list(_statistics(session, job.id, name)) for name in _outputs(session, job.id)}
    found = settled(outputs)
    worst = worst_explanation(found.values())
    figures = {}
    for name, rows in outputs.items():
        together = pooled(rows)
        figures[name] = {
            "explanation": found[name].value,
            "rows": len(rows),
            "evidence": evidence(together),
            "statistics": {
                each: value for each, value in together.items() if not each.endswith("count")
            },
        }
    return {
        "explanation": worst.value,
        "pooled": figures,
        "words": f"{asked}: {_MEANS.get(worst, worst.sentence)}",
    }


def _named(suspect: Sequence[int]) -> str:
    more = f" and {len(suspect) - NAMED} more" if len(suspect) > NAMED else ""
    if len(suspect) == 1:
        return f"seed {suspect[0]} is suspect"
    return f"seeds {', '.join(map(str, suspect[:NAMED]))}{more} are suspect"


def _free(session: Session, job: JobRow, count: int) -> list[int]:
    """So many seeds that have not run: behind the largest, or where the numbers end there, before
    the smallest.
    """
    if not count:
        return []
    table = SeedResultRow
    low, high = session.execute(
        select(func.min(table.seed), func.max(table.seed)).where(table.job_id == job.id)
    ).one()
    return (
        list(range(high + 1, high + 1 + count))
        if high + count <= MAX_SEED
        else list(range(max(0, low - count), low))
    )


def _seeds(session: Session, job: JobRow, explanation: Explanation) -> list[int]:
    table = SeedResultRow
    query = (
        select(table.seed)
        .where(table.job_id == job.id, table.seed_explanation == explanation.value)
        .distinct()
    )
    return list(session.scalars(query.order_by(table.seed)))


def _verdicts_of_suspects(session: Session, job: JobRow) -> list[str]:
    table = SeedResultRow
    query = select(table.seed_verdict).where(
        table.job_id == job.id, table.seed_explanation == Explanation.suspect.value
    )
    return list(session.scalars(query.distinct()))


def _outputs(session: Session, job_id: str) -> list[str]:
    """The outputs of which some seed is suspect: the others are explained by every seed."""
    table = SeedResultRow
    query = select(table.output).where(
        table.job_id == job_id, table.explanation == Explanation.suspect.value
    )
    return list(session.scalars(query.distinct().order_by(table.output)))


def _statistics(session: Session, job_id: str, output: str) -> Iterator[dict[str, Any]]:
    table = SeedResultRow
    query = (
        select(table)
        .where(table.job_id == job_id, table.output == output)
        .order_by(table.seed.desc(), table.repeat)
        .limit(MOST_POOLED)
    )
    for row in session.scalars(query):
        yield {**(row.statistics or {}), **{name: getattr(row, name) for name in COLUMNS}}


def _finding(session: Session, job: JobRow, verdict: Verdict) -> Finding:
    told = job.suspects or {}
    kind, sentence = _FLAGS[verdict]
    output = max(told["pooled"], key=lambda name: told["pooled"][name]["evidence"] or 0.0)
    canonical = session.get_one(TestSpecRow, job.test_key).canonical
    seed = told["seeds"][0]
    proof = {
        "sentence": sentence,
        "words": told["words"],
        "job": job.id,
        "build": job.build,
        "seed": seed,
        "output": output,
        "seeds": told["count"],
        "of": job.done,
        "suspects": {name: told[name] for name in ("seeds", "added", "rounds", "explanation")},
        "pooled": told["pooled"],
        "tolerance": dict(canonical.get("tolerance", {})),
        "policy": VERDICTS.version,
        "diagnosis": (job.diagnosis or {}).get("words"),
        "check": check_line(
            canonical,
            build=job.build,
            executor=job.executor,
            seed=seed,
            output=output,
            context=job.context,
        ),
    }
    return Finding.of(job, kind, proof)

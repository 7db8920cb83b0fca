"""Suspect seeds of a job.

A suspect seed raises no flag. It adds seeds to its job, and the pooled statistics of all seeds
decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.sequential import more_for_suspects
from gonogo.flakiness.suspects import (
    MAX_SEEDS,
    RED,
    SETTLED,
    pooled,
    pooled_explanations,
    seeds_to_decide,
)
from gonogo.spec.selections import KERNEL
from gonogo.spec.verdicts import POLICY as VERDICTS
from gonogo.spec.verdicts import Explanation, Verdict, evidence, worst_explanation
from gonogo_storage.db.records import from_json
from gonogo_storage.db.states import FlagKind
from gonogo_storage.flags import unseen
from gonogo_storage.flags.evidence import check_line
from gonogo_storage.flags.evidence_kinds import PooledOutput, SuspectEvidence, SuspectsOfJob
from gonogo_storage.flags.flags import Finding
from gonogo_storage.seed_rows import stored
from gonogo_storage.seed_rows.layouts import TAIL
from gonogo_storage.tables import JobRow, SeedResultRow, TestSpecRow

MAX_SEED = 2**53 - 1
NAMED = 8
"""Maximum number of suspect seeds that are listed."""
MAX_POOLED = 1000
"""Maximum number of pooled seeds: the last ones, which include the added ones.

More would only hold the job's lock longer.
"""
_NOTHING_ADDED: Mapping[str, Any] = {
    "seeds": [],
    "count": 0,
    "rounds": 0,
    "added": [],
    "explanation": None,
    "pooled": None,
    "words": "",
}
_LOST = (Verdict.error, Verdict.crash, Verdict.hang)
_MEANS = {
    Explanation.explained: "rounding explains them together: it was chance",
    Explanation.suspect: (
        "together they are still at the edge of what rounding explains:"
        " no finding, and no all-clear"  # `undecided` adds how many more seeds would decide
    ),
    Explanation.inconclusive: (
        "rounding explains them together, but no seed could have seen every term"
    ),
    Explanation.unexplained: "rounding does not explain them together",
}
_FLAGS = {
    Verdict.pass_by_tolerance: (
        FlagKind.passes_by_tolerance,
        "Green only because the tolerance is loose: rounding does not explain the errors of many"
        " seeds together.",
    ),
    Verdict.fail_by_tolerance: (
        FlagKind.tolerance_too_tight,
        "Red though right: rounding explains the errors of many seeds together, the tolerance is"
        " tighter than the formats allow.",
    ),
}


def consider(session: Session, job: JobRow) -> list[int]:
    """Return the seeds to add to a job whose chunks are all closed.

    There are none if nothing depends on its suspect seeds (any more). Only jobs with a range or a
    maximum number of seeds get any, not those with a list of seeds. Selections get none, because
    their tests have their own criteria, and neither do comparisons of two builds, because they
    raise no flags. A job with an unexplained seed, or one without numbers, gets none, because its
    verdict can't change.
    """
    status = job.suspects
    if status is None and not _eligible(job):
        return []
    suspect, unexplained = (
        _seeds(session, job, Explanation.suspect),
        _seeds(session, job, Explanation.unexplained),
    )
    if status is None:
        if not suspect or unexplained:
            return []
        status = {**_NOTHING_ADDED}
    else:
        status = {**status, **_judged(session, job, status, suspect, unexplained)}
    status |= {"seeds": suspect[:NAMED], "count": len(suspect), "policy": POLICY.version}
    more: list[int] = []
    if status["explanation"] in (None, Explanation.suspect) and not any(
        job.counts.get(verdict) for verdict in _LOST
    ):
        more = _free(session, job, more_for_suspects(len(suspect), status["rounds"], POLICY))
    if more:
        words = f"{len(more)} seeds added: {_named(suspect)}"
        status |= {
            "rounds": status["rounds"] + 1,
            "added": [*status["added"], *more],
            "words": words,
            "explanation": None,
            "pooled": None,
        }
    job.suspects = status
    return more


def undecided(session: Session, job: JobRow) -> None:
    """Tell of a job that ends suspect what would decide: more seeds, or other inputs."""
    outputs = [_statistics(session, job.id, name) for name in _outputs(session, job.id)]
    suspect = _seeds(session, job, Explanation.suspect)
    if not suspect:
        return
    status = job.suspects or {
        **_NOTHING_ADDED,
        "seeds": suspect[:NAMED],
        "count": len(suspect),
        "policy": POLICY.version,
        "words": (
            f"{_named(suspect)}: rounding is at its edge, which is no finding, and no all-clear"
        ),
    }
    more = seeds_to_decide(outputs)
    about = "more than 1,000" if more >= MAX_SEEDS else f"about {more}"
    remedy = (
        f"{about} more seed{'s' * (more != 1)} would decide"
        if more
        else "the seeds agree, so more of them would not decide; exact inputs would"
    )
    job.suspects = {**status, "more": more, "words": f"{status['words']}; {remedy}"}


def verdicts(session: Session, job: JobRow) -> set[Verdict]:
    """Return the verdicts of a job's seeds; the worst one is the job's.

    Suspect seeds have the verdict that the pooled statistics give them. Seeds that are inconclusive
    only for terms that other seeds could have seen are false alarms.
    """
    explanation = (job.suspects or {}).get("explanation")
    if explanation in (None, Explanation.suspect):
        final_verdicts = {Verdict(name) for name, seeds in job.counts.items() if seeds}
    else:
        table = SeedResultRow
        query = select(table.verdict, table.explanation).where(table.job_id == job.id)
        final_verdicts = {
            _final(Verdict(verdict), seed_explanation, Explanation(explanation))
            for verdict, seed_explanation in session.execute(query.distinct())
        }
    if (
        Verdict.inconclusive in final_verdicts
        and explanation != Explanation.inconclusive
        and unseen.all_seen(session, job.id)
    ):
        return final_verdicts - {Verdict.inconclusive} | {Verdict.fail_by_tolerance}
    return final_verdicts


def counts(
    session: Session, job_id: str, counted: Mapping[str, int], together: Explanation
) -> dict[str, int]:
    """Return a job's counters, with suspect seeds counted by their final verdicts.

    `together` is the pooled explanation: explained, inconclusive or unexplained.
    """
    table = SeedResultRow
    numbers = (
        select(table.verdict, func.count())
        .where(table.job_id == job_id, table.explanation == Explanation.suspect.value)
        .group_by(table.verdict)
    )
    counters = dict(counted)
    for verdict, number in session.execute(numbers):
        final = SETTLED.get((Verdict(verdict), together), Verdict(verdict))
        counters[verdict] = counters.get(verdict, 0) - number
        counters[final.value] = counters.get(final.value, 0) + number
    return {verdict: number for verdict, number in counters.items() if number > 0}


def findings(session: Session, job: JobRow) -> list[Finding]:
    """Return the flags that the pooled statistics call for, with these as evidence.

    A flag that a single seed calls for is left out.
    """
    status = job.suspects or {}
    if not status.get("pooled") or status["explanation"] == Explanation.suspect:
        return []
    final_verdicts = {
        _final(Verdict(name), Explanation.suspect, Explanation(status["explanation"]))
        for name in _verdicts_of_suspects(session, job)
    }
    return [
        _finding(session, job, verdict)
        for verdict in _FLAGS
        if verdict in final_verdicts and not job.counts.get(verdict)
    ]


def _eligible(job: JobRow) -> bool:
    is_range = isinstance(job.request.get("seeds"), Mapping)
    may_change = any(job.counts.get(verdict) for verdict in (Verdict.suspect, *RED))
    return bool(is_range and may_change and job.reference is None and job.kernel != KERNEL)


def _final(verdict: Verdict, explanation: str | None, together: Explanation) -> Verdict:
    if explanation != Explanation.suspect:
        return verdict
    return SETTLED.get((verdict, together), verdict)


def _judged(
    session: Session,
    job: JobRow,
    status: Mapping[str, Any],
    suspect: Sequence[int],
    unexplained: Sequence[int],
) -> dict[str, Any]:
    """Return the conclusion after a round of added seeds: {"explanation", "pooled", "words"}.

    It rests on a seed that is unexplained by itself, or else on the pooled statistics.
    """
    summary = f"{_named(suspect)}; {len(status['added'])} seeds were added"
    if unexplained:
        by_itself = f"seed {unexplained[0]} is unexplained by itself"
        return {
            "explanation": Explanation.unexplained.value,
            "pooled": None,
            "words": f"{summary}: {by_itself}",
        }
    outputs = {name: _statistics(session, job.id, name) for name in _outputs(session, job.id)}
    explanations = pooled_explanations(outputs)
    worst = worst_explanation(explanations.values())
    figures = {}
    for name, rows in outputs.items():
        together = pooled(rows)
        figures[name] = {
            "explanation": explanations[name].value,
            "rows": len(rows),
            "evidence": evidence(together),
            "statistics": {
                statistic: value
                for statistic, value in together.items()
                if not statistic.endswith("count")
            },
        }
    return {
        "explanation": worst.value,
        "pooled": figures,
        "words": f"{summary}: {_MEANS.get(worst, worst.sentence)}",
    }


def _named(suspect: Sequence[int]) -> str:
    more = f" and {len(suspect) - NAMED} more" if len(suspect) > NAMED else ""
    if len(suspect) == 1:
        return f"seed {suspect[0]} is suspect"
    return f"seeds {', '.join(map(str, suspect[:NAMED]))}{more} are suspect"


def _free(session: Session, job: JobRow, count: int) -> list[int]:
    """Return `count` seeds that have not run.

    They follow the largest one, or precede the smallest one if they would exceed MAX_SEED.
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
        .where(table.job_id == job.id, table.explanation == explanation.value)
        .distinct()
    )
    return list(session.scalars(query.order_by(table.seed)))


def _verdicts_of_suspects(session: Session, job: JobRow) -> list[str]:
    table = SeedResultRow
    query = select(table.verdict).where(
        table.job_id == job.id, table.explanation == Explanation.suspect.value
    )
    return list(session.scalars(query.distinct()))


def _outputs(session: Session, job_id: str) -> list[str]:
    """Return the outputs with a suspect seed, or a red one with a term that it could not have seen.

    All seeds explain the others.
    """
    table = SeedResultRow
    # a seed's explanation is the worst of its outputs
    worst = (Explanation.unexplained.value, Explanation.suspect.value)
    query = stored.query(table.job_id == job_id, table.explanation.in_(worst))
    suspect = {
        name
        for seed in stored.read(session, query, "digest")
        for name, output in seed.outputs.items()
        if output["explanation"] == Explanation.suspect
    }
    return sorted({*suspect, *unseen.outputs(session, job_id)})


def _statistics(session: Session, job_id: str, output: str) -> list[dict[str, Any]]:
    table = SeedResultRow
    with_outputs = stored.query(table.job_id == job_id, table.layout.is_not(None))
    last = with_outputs.order_by(table.seed.desc(), table.repeat).limit(MAX_POOLED)
    return [
        {name: value for name, value in seed.outputs[output].items() if name not in TAIL}
        for seed in stored.read(session, last)
        if output in seed.outputs
    ]


def _finding(session: Session, job: JobRow, verdict: Verdict) -> Finding:
    status = job.suspects or {}
    kind, sentence = _FLAGS[verdict]
    output = max(status["pooled"], key=lambda name: status["pooled"][name]["evidence"] or 0.0)
    canonical = session.get_one(TestSpecRow, job.test_key).canonical
    seed = status["seeds"][0]
    shown = SuspectEvidence(
        sentence=sentence,
        words=status["words"],
        job=job.id,
        build=job.build,
        seed=seed,
        output=output,
        seeds=status["count"],
        of=job.done,
        suspects=from_json(SuspectsOfJob, status),
        pooled={
            name: from_json(PooledOutput, figures) for name, figures in status["pooled"].items()
        },
        tolerance=dict(canonical.get("tolerance", {})),
        policy=VERDICTS.version,
        diagnosis=(job.diagnosis or {}).get("words"),
        check=check_line(
            canonical,
            build=job.build,
            executor=job.executor,
            seed=seed,
            output=output,
            context=job.context,
        ),
    )
    return Finding.of(job, kind, asdict(shown))

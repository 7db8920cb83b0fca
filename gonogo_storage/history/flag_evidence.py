"""The flags that an assessment calls for, each with evidence enough to run it again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo.flakiness import masking
from gonogo.flakiness.attribution import Cause
from gonogo.flakiness.attribution import Finding as Factor
from gonogo.flakiness.grades import Stability
from gonogo.flakiness.rates import Outcome, outcome_of, rate
from gonogo.spec.verdicts import Explanation, Verdict
from gonogo_storage.db.states import IMPORT_EXECUTOR, FlagKind
from gonogo_storage.flags import evidence
from gonogo_storage.flags.evidence import check_line
from gonogo_storage.flags.flags import Finding
from gonogo_storage.history.assessing import Assessment
from gonogo_storage.history.samples import Run
from gonogo_storage.rollups.variants import ISOLATED
from gonogo_storage.tables import JobRow, SeedResultRow, TestSpecRow

EXAMPLES = 8
"""Runs shown as examples, each with its job, device, digest and verdict."""
LISTED = 50
"""Seeds, jobs and devices named for running it again."""
REPEATS = 8
"""Of the check line where the same seed differs: a kernel that differs every fourth time shows with
p = .9."""
SENTENCES = {
    FlagKind.flaky: "Some seeds pass and some fail on the same build.",
    FlagKind.nondeterministic: "The same seed on the same device gives different outputs.",
    FlagKind.device_dependent: "Equal seeds give different outputs, or outcomes, on different devices.",
    FlagKind.context_dependent: "Equal seeds give different outputs, or outcomes, by what ran before in the process.",
    FlagKind.latent_flake: "Every seed passed, and the tail of its errors reaches the tolerance.",
    FlagKind.fix_masked: masking.Change.fix_masked.sentence,
    FlagKind.hangs: "Some seed did not end within its deadline.",
}
_VERDICTS = {
    FlagKind.passes_by_tolerance: Verdict.pass_by_tolerance,
    FlagKind.tolerance_too_tight: Verdict.fail_by_tolerance,
}
_FACTORS = {
    Cause.nondeterministic: FlagKind.nondeterministic,
    Cause.device_dependent: FlagKind.device_dependent,
    Cause.context_dependent: FlagKind.context_dependent,
}


def findings(session: Session, found: Assessment) -> list[Finding]:
    """The flags to open or renew. A kind is renewed only where the job itself speaks for it, so
    that old evidence lets a flag fade: a flaky test's job must have a red seed (or be the first
    green one after reds only), a factor's job seeds that take part in it.
    """
    mine = [run for run in found.runs if run.job.id == found.job.id]
    canonical = session.get_one(TestSpecRow, found.variant.test_key).canonical
    made: list[Finding | None] = [
        _hangs(session, found, mine, canonical),
        _flaky(found, mine, canonical),
    ]
    made += [_factor(found, mine, canonical, kind, cause) for cause, kind in _FACTORS.items()]
    made += [_latent(found, mine, canonical), _masked(found, mine, canonical)]
    made += [
        _fuller(found, mine, each)
        for each in evidence.findings(session, session.get_one(JobRow, found.job.id))
    ]
    return [each for each in made if each is not None]


def _fuller(found: Assessment, mine: Sequence[Run], base: Finding) -> Finding | None:
    """What ingest flagged by verdict, with all that it takes to run it again; ingest has no time
    for it. The same job counts once.
    """
    verdict = _VERDICTS[base.kind]
    speaking = [run for run in mine if run.verdict == verdict] or list(mine)
    if not speaking:
        return None
    share = rate(
        int(base.evidence["seeds"]),
        max(int(base.evidence["seeds"]), int(base.evidence["of"])),
        found.policy,
    )
    worst = sorted(speaking, key=lambda run: run.seed != base.evidence.get("seed"))
    more = {
        "words": f"{share.words} seeds", "figures": {"seeds": share.to_json()}, "looked": found.looked.to_json(),
        "examples": [_example(run) for run in worst[:EXAMPLES]], "rerun": _rerun(speaking, worst),
        "left_out": {name: dict(each) for name, each in found.left_out.items()},
    }  # fmt: skip
    return replace(base, evidence={**base.evidence, **more})


def _hangs(
    session: Session, found: Assessment, mine: Sequence[Run], canonical: Mapping[str, Any]
) -> Finding | None:
    hung = [run for run in mine if run.verdict == Verdict.hang]
    if not hung:
        return None
    tried = sum(run.verdict == Verdict.hang for run in found.runs)
    share = rate(tried, len(found.runs), found.policy)
    table = SeedResultRow
    message = select(table.message).where(
        table.job_id == found.job.id, table.seed == hung[0].seed, table.repeat == hung[0].repeat
    )
    figures = {"hangs": share.to_json(), "message": session.scalar(message.limit(1))}
    return _finding(
        found, FlagKind.hangs, canonical, f"{share.words} runs hung", figures, hung, hung
    )


def _flaky(found: Assessment, mine: Sequence[Run], canonical: Mapping[str, Any]) -> Finding | None:
    red, green = _by_outcome(found.runs)
    if found.grade.stability is not Stability.flaky and not (red and green):
        return None
    own_red, own_green = _by_outcome(mine)
    news = own_red or (own_green and len(own_green) == len(green))
    if not news:
        return None
    why = found.attribution
    counted = (
        found.grade.failures if found.grade.failures.runs > why.failures.runs else why.failures
    )  # where not every seed was read
    figures = {
        "failures": counted.to_json(), "infrastructure": why.lost.to_json(), "cause": why.cause.value,
        "causes": [each.value for each in why.causes], "contexts": [row.to_json() for row in why.contexts],
        "devices": [row.to_json() for row in why.devices],
    }  # fmt: skip
    repeats = REPEATS if Cause.nondeterministic in why.causes else 1
    shown = [*red[-EXAMPLES // 2 :], *green[-EXAMPLES // 2 :]]
    return _finding(
        found, FlagKind.flaky, canonical, why.words, figures, red or mine, shown, repeats=repeats
    )


def _factor(
    found: Assessment,
    mine: Sequence[Run],
    canonical: Mapping[str, Any],
    kind: FlagKind,
    cause: Cause,
) -> Finding | None:
    factor = next(
        (each for each in found.attribution.findings if each.cause is cause and each.holds), None
    )
    if factor is None or not any(_takes_part(run, factor) for run in mine):
        return None
    named = {each.get("seed") for each in factor.examples}
    speaking = [run for run in found.runs if run.seed in named and run.digest is not None] or list(
        mine
    )
    figures = {
        **factor.to_json(),
        "contexts": [row.to_json() for row in found.attribution.contexts],
    }
    if (
        kind is FlagKind.context_dependent
    ):  # the line to run it again shows it in a context, not alone
        speaking.sort(key=lambda run: run.job.context == ISOLATED)
    if kind is FlagKind.device_dependent:
        figures["devices"] = [row.to_json() for row in found.attribution.devices]
    repeats = 1 if kind is FlagKind.device_dependent else REPEATS
    return _finding(
        found, kind, canonical, factor.words, figures, speaking, _unlike(speaking), repeats=repeats
    )


def _takes_part(run: Run, factor: Factor) -> bool:
    """Whether a run is of those that the factor was seen in: with a digest where digests differ,
    else with an outcome.
    """
    judged = outcome_of(run.verdict, run.green) in (Outcome.passed, Outcome.failed)
    return judged and (run.digest is not None or bool(factor.rows))


def _latent(found: Assessment, mine: Sequence[Run], canonical: Mapping[str, Any]) -> Finding | None:
    fitted = found.grade.tail
    if not found.grade.latent or fitted is None or not any(run.ratio is not None for run in mine):
        return None
    known = [run for run in found.runs if run.ratio is not None]
    worst = sorted(known, key=lambda run: -(run.ratio or 0.0))
    figures = {
        "tail": fitted.to_json(),
        "target": found.policy.latent_target,
        "era": list(found.era),
    }
    seeds = min(len({run.seed for run in known}), 4096)
    repeats = REPEATS if fitted.per == "runs" else 1
    return _finding(
        found,
        FlagKind.latent_flake,
        canonical,
        fitted.words,
        figures,
        worst,
        worst,
        repeats=repeats,
        count=seeds,
    )


def _masked(found: Assessment, mine: Sequence[Run], canonical: Mapping[str, Any]) -> Finding | None:
    change = found.change
    if change is None or change.change is not masking.Change.fix_masked:
        return None
    wrong = [run for run in mine if run.explanation == Explanation.unexplained]
    if not wrong:
        return None
    return _finding(
        found,
        FlagKind.fix_masked,
        canonical,
        change.words,
        {"change": change.to_json()},
        wrong,
        wrong,
        before=change.before,
    )


def _finding(
    found: Assessment,
    kind: FlagKind,
    canonical: Mapping[str, Any],
    words: str,
    figures: Mapping[str, Any],
    speaking: Sequence[Run],
    shown: Sequence[Run],
    *,
    repeats: int = 1,
    count: int = 1,
    before: str | None = None,
) -> Finding:
    """One finding. speaking: the runs that say so, the telling ones first; shown: of them or beside
    them, as examples.
    """
    job = found.job
    head = speaking[0]
    first = min(run.seed for run in speaking) if count > 1 else head.seed
    output = min(head.digests, default="")
    proof: dict[str, Any] = {
        "sentence": SENTENCES[kind],
        "words": words,
        "job": job.id,
        "build": job.build,
        "seeds": len({run.seed for run in speaking}),
        "of": found.looked.seeds,
        "looked": found.looked.to_json(),
        "tolerance": dict(canonical.get("tolerance") or {}),
        "seed": head.seed,
        "repeat": head.repeat,
        "figures": dict(figures),
        "examples": [_example(run) for run in shown[:EXAMPLES]],
        "rerun": _rerun(
            speaking,
            shown,
            repeats,
            before,
            found.runs if kind is FlagKind.context_dependent else speaking,
        ),
        "check": None
        if job.executor == IMPORT_EXECUTOR
        else check_line(
            canonical,
            build=job.build,
            executor=job.executor,
            seed=first,
            output=output,
            seeds=count,
            repeats=repeats,
            context=head.job.context_asked,
        ),
        "check_leaves_out": [name for name in ("memory", "program") if name in canonical],
        "left_out": {name: dict(each) for name, each in found.left_out.items()},
        "policy": found.policy.version,
    }
    return Finding(
        kind=kind, test_key=found.variant.test_key, branch=found.variant.branch, arch=found.variant.arch,
        board=found.variant.board, workload_key=job.workload_key, kernel=job.kernel, build=job.build, job=job.id, evidence=proof,
    )  # fmt: skip


def _rerun(
    speaking: Sequence[Run],
    shown: Sequence[Run],
    repeats: int = 1,
    before: str | None = None,
    contexts: Sequence[Run] | None = None,
) -> dict[str, Any]:
    """What a job that shows it again must ask for."""
    return {
        "seeds": _some(run.seed for run in speaking),
        "repeats": repeats,
        "devices": _some(run.device for run in speaking if run.device),
        "builds": _some([*([before] if before else []), *(run.job.build for run in speaking)]),
        "contexts": _some(run.job.context for run in contexts or speaking),
        "jobs": _some(run.job.id for run in [*shown[:EXAMPLES], *speaking]),
    }


def _by_outcome(runs: Iterable[Run]) -> tuple[list[Run], list[Run]]:
    """(red, green)."""
    told = [(run, outcome_of(run.verdict, run.green)) for run in runs]
    return [run for run, outcome in told if outcome is Outcome.failed], [
        run for run, outcome in told if outcome is Outcome.passed
    ]


def _unlike(runs: Sequence[Run]) -> list[Run]:
    """Runs of the first seed with each of its digests, then those of the next."""
    seen: dict[Any, Run] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        seen.setdefault((run.seed, run.digest, run.device, run.job.context), run)
    return list(seen.values())


def _example(run: Run) -> dict[str, Any]:
    return {
        "job": run.job.id, "build": run.job.build, "seed": run.seed, "repeat": run.repeat, "device": run.device,
        "context": run.job.context, "host_run": run.host_run, "position": run.position, "verdict": run.verdict,
        "explanation": run.explanation, "tolerance_ratio": run.ratio, "digests": dict(run.digests),
    }  # fmt: skip


def _some(values: Iterable[Any]) -> list[Any]:
    """Each once, in order, the first fifty."""
    return list(dict.fromkeys(values))[:LISTED]

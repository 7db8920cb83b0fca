"""Find the flags of a variant that resolve by themselves: quiet long enough, and ruled out.

It loads numpy, so the API process must not import it.
"""

from __future__ import annotations

from collections.abc import Container

from sqlalchemy.orm import Session

from gonogo.flakiness.attribution import Attribution, Cause, attribute
from gonogo.flakiness.grades import Stability
from gonogo.flakiness.policy import POLICY
from gonogo_service.flags import flag_expiry
from gonogo_service.flags import store as flags
from gonogo_service.flags.flag_expiry import Quiet
from gonogo_service.kit.database.states import FlagKind
from gonogo_service.tests import samples
from gonogo_service.tests.assessing import Assessment

_CAUSES = {
    FlagKind.nondeterministic: Cause.nondeterministic,
    FlagKind.device_dependent: Cause.device_dependent,
    FlagKind.context_dependent: Cause.context_dependent,
}


def to_resolve(
    session: Session, assessment: Assessment, raised: Container[FlagKind]
) -> list[tuple[str, int, Quiet]]:
    """Return (id, version, quiet period) of each flag of the variant to resolve.

    Flags of kinds that this assessment raised are not among them.

    After the quiet period (gonogo_service.flags.flag_expiry) a factor must have been looked for.
    Seeds that each ran once say nothing of nondeterminism. So at least `few_pairs` seeds must have
    been compared since the evidence, with none differing. A latent flake needs a tail that stays
    clear.
    """
    resolvable = []
    for flag, quiet_after in flags.active(session, assessment.variant):
        if flag.kind in raised or flag.kind not in flag_expiry.SELF_RESOLVING:
            continue
        quiet = flag_expiry.since(flag.kind, assessment.jobs, quiet_after)
        if quiet.enough and _evidence_is_over(session, assessment, flag.kind, quiet):
            resolvable.append((flag.id, flag.version, quiet))
    return resolvable


def _evidence_is_over(
    session: Session, assessment: Assessment, kind: FlagKind, quiet: Quiet
) -> bool:
    if kind is FlagKind.latent_flake:
        return assessment.grade.stability is Stability.robust
    cause = _CAUSES.get(kind)
    if cause is None:
        return True
    history = samples.of_jobs(session, assessment.variant, quiet.jobs)
    return _ruled_out(attribute(samples.samples(history)), cause, POLICY.few_pairs)


def _ruled_out(attribution: Attribution, cause: Cause, min_runs: int) -> bool:
    """Return whether the runs could have shown a factor, and didn't."""
    factor = next(finding for finding in attribution.findings if finding.cause is cause)
    if factor.holds or factor.compared.failures:
        return False
    if factor.compared.runs >= min_runs:
        return True
    rows = {
        Cause.context_dependent: attribution.contexts,
        Cause.device_dependent: attribution.devices,
    }.get(cause, ())
    return len(rows) > 1 and min(row.runs for row in rows) >= min_runs

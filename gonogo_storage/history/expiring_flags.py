"""Which flags of a variant are over by themselves: quiet long enough, and looked for. It loads
numpy: not for the API process.
"""

from __future__ import annotations

from collections.abc import Container

from sqlalchemy.orm import Session

from gonogo.flakiness.attribution import Attribution, Cause, attribute
from gonogo.flakiness.grades import Stability
from gonogo_storage.db.states import FlagKind
from gonogo_storage.flags import flag_expiry, flags
from gonogo_storage.flags.flag_expiry import Quiet
from gonogo_storage.history import samples
from gonogo_storage.history.assessing import Assessment

_CAUSES = {
    FlagKind.nondeterministic: Cause.nondeterministic,
    FlagKind.device_dependent: Cause.device_dependent,
    FlagKind.context_dependent: Cause.context_dependent,
}


def faded(
    session: Session, found: Assessment, raised: Container[FlagKind]
) -> list[tuple[str, int, Quiet]]:
    """(id, version, what was quiet) of each flag of the variant that is over; none of the kinds
    that this assessment raised.

    Beside the quiet period (gonogo_storage.flags.flag_expiry) a factor must have been looked for: seeds that
    each ran once say nothing of nondeterminism, so `few_pairs` seeds or more were compared since
    the evidence, and none differs. A latent flake needs a tail that stays clear.
    """
    over = []
    for flag in flags.active(session, found.variant):
        kind = FlagKind(flag["kind"])
        if kind in raised or kind not in flag_expiry.BY_ITSELF:
            continue
        seen = flag_expiry.since(kind, found.jobs, flag["quiet_after"], found.policy)
        if seen.enough and _answered(session, found, kind, seen):
            over.append((flag["id"], flag["version"], seen))
    return over


def _answered(session: Session, found: Assessment, kind: FlagKind, seen: Quiet) -> bool:
    if kind is FlagKind.latent_flake:
        return found.grade.stability is Stability.robust
    cause = _CAUSES.get(kind)
    if cause is None:
        return True
    history = samples.of_jobs(session, found.variant, seen.jobs)
    return _absent(attribute(samples.samples(history), found.policy), cause, found.policy.few_pairs)


def _absent(told: Attribution, cause: Cause, least: int) -> bool:
    """Whether a factor was looked for, and not found."""
    factor = next(each for each in told.findings if each.cause is cause)
    if factor.holds or factor.compared.failures:
        return False
    if factor.compared.runs >= least:
        return True
    rows = {Cause.context_dependent: told.contexts, Cause.device_dependent: told.devices}.get(
        cause, ()
    )
    return len(rows) > 1 and min(row.rate.runs for row in rows) >= least

"""Flags in the database: opened, listed, changed by people, resolved and expired by themselves.

Every change that matters to people goes into the flag's history; people's changes and automatic
ones also go into the audit log, openings and resolutions into the outbox.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from gonogo.errors import FieldError
from gonogo.spec.executors import EMULATOR
from gonogo_service.flags.evidence_kinds import FlagDetail, stored
from gonogo_service.flags.model import BACKGROUND, FlagChangeRow, FlagRow
from gonogo_service.flags.noun import MAX_REASON, FlagState
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit import audit
from gonogo_service.kit.database.dialect import insert_once
from gonogo_service.kit.database.encoding import timestamp, utcnow
from gonogo_service.kit.database.ids import is_id, new_id
from gonogo_service.kit.outbox import outbox
from gonogo_service.kit.problems import WrongField, wrong_field
from gonogo_service.people import store as tokens
from gonogo_service.tests.variants import OVER, Variant, graded_job

MANUAL_CHANGES: Mapping[FlagState, tuple[FlagState, ...]] = {
    FlagState.open: (FlagState.acknowledged, FlagState.resolved),
    FlagState.reopened: (FlagState.acknowledged, FlagState.resolved),
    FlagState.acknowledged: (FlagState.open, FlagState.resolved),
    FlagState.resolved: (FlagState.open,),
}
"""State -> the states that a person may set. Only new evidence sets `reopened`."""
MAX_EXPIRED = 100
TOPICS = {
    "opened": "flag.opened",
    "reopened": "flag.opened",
    "expired": "flag.opened",
    "resolved": "flag.resolved",
}
"""Change -> the message about it, once per flag version."""
_COLUMNS = tuple(column.key for column in FlagRow.__table__.columns)


class Outdated(FieldError):
    """The flag or waiver has another version than the change expects."""

    def __init__(self, given: int, current: int, happened: str) -> None:
        super().__init__("version", given, f"is outdated: {happened}", limit=current)


# --- findings


def upsert(session: Session, finding: FlagRow, *, now: datetime) -> tuple[FlagRow, bool]:
    """Open or reopen a flag, or renew its evidence; return it, and whether it opened or reopened.

    An opening goes into the flag's history and, as `flag.opened`, into the outbox. The same job,
    judged or assessed again, is no new evidence: it counts once, and doesn't reopen a flag that was
    resolved since. Evidence of an older build than the variant's newest, and of a job that ended
    before the resolution, reopens nothing. Evidence of an older build doesn't replace newer one.
    """
    columns = {name: getattr(finding, name) for name in _COLUMNS}
    new = {"id": new_id(), "state": FlagState.open, "first_job": finding.last_job, "jobs": 0}
    new |= {"version": 0, "opened_at": now, "updated_at": now}
    insert_once(session, FlagRow, [{**columns, **new}])
    of_variant = Variant.of(finding).at(FlagRow)
    query = select(FlagRow).where(FlagRow.kind == finding.kind, *of_variant)
    flag = session.scalars(query.with_for_update().execution_options(populate_existing=True)).one()
    again = flag.version > 0 and flag.last_job == finding.last_job
    if again and (flag.state is FlagState.resolved or flag.evidence == finding.evidence):
        return flag, False
    if flag.version > 0 and not again and _is_outdated(session, flag, finding):
        return flag, False
    before = None if flag.version == 0 else flag.state
    values = {name: getattr(finding, name) for name in ("evidence", "build", "last_job")}
    values |= {"jobs": flag.jobs + (not again), "quiet_after": _newest_job(session, finding)}
    if before not in (None, FlagState.resolved):
        _set(flag, values, now)
        session.flush()
        return flag, False
    if before is FlagState.resolved:
        values |= {"state": FlagState.reopened, "opened_at": now}
    what = "opened" if before is None else "reopened"
    detail = stored(FlagDetail(job=finding.last_job, build=finding.build, check=finding.check))
    _change(session, flag, values, what, BACKGROUND, finding.sentence, detail, now, before=before)
    return flag, True


def _is_outdated(session: Session, flag: FlagRow, finding: FlagRow) -> bool:
    """Return whether newer results, or the flag's resolution, say more than a finding does."""
    job = session.get(JobRow, finding.last_job)
    if job is None:
        return False
    ordered = finding.branch != EMULATOR  # the emulator's builds are no series
    if flag.state is not FlagState.resolved:
        last = session.get(JobRow, flag.last_job)
        return ordered and last is not None and job.build_sequence < last.build_sequence
    resolved = select(FlagChangeRow.at).where(
        FlagChangeRow.flag_id == flag.id, FlagChangeRow.what == "resolved"
    )
    resolved_at = session.scalar(resolved.order_by(FlagChangeRow.version.desc()).limit(1))
    if job.finished_at and resolved_at and job.finished_at <= resolved_at:
        return True
    if finding.kind.of_gauge or not ordered:
        return False
    graded = graded_job(session, Variant.of(finding))
    return graded is not None and job.build_sequence < graded.sequence


def _newest_job(session: Session, finding: FlagRow) -> str:
    """Return the larger id: of the variant's newest job, or of the finding's job.

    So a clock that went back doesn't make jobs before the evidence look later.
    """
    query = select(JobRow.id).where(*Variant.of(finding).at(JobRow), OVER)
    newest = session.scalar(query.order_by(JobRow.id.desc()).limit(1))
    return max(finding.last_job, newest or finding.last_job)


# --- changes by people


def change(
    session: Session,
    flag_id: str,
    fields: Mapping[str, Any],
    *,
    actor: str,
    version: int | None = None,
    now: datetime | None = None,
) -> FlagRow | None:
    """Set any of state, owner, reason and expires; return the flag, or None.

    The row is locked, so that neither this change nor that of an ending job is lost. Equal values
    make no new version and no entry. Raises FieldError if the present state doesn't allow the new
    one, for an acknowledgement without owner, reason or end, and for an end that is past or not of
    an acknowledgement. Raises Outdated if `version` is given and not the present one.
    """
    flag = _locked(session, flag_id)
    if flag is not None:
        _check_version(session, flag, version)
        _apply(session, flag, fields, actor=actor, now=now or utcnow())
    return flag


@dataclass(frozen=True)
class FlagBefore:
    """The fields of a flag before a change, as needed to undo it."""

    state: FlagState
    owner: str | None
    reason: str | None
    expires_at: datetime | None


@dataclass(frozen=True)
class Outcome:
    """The outcome of changing one of several flags; `flag` is None if it doesn't exist."""

    id: str
    outcome: Literal["changed", "same", "refused", "missing"]
    flag: FlagRow | None = None
    before: FlagBefore | None = None
    problem: WrongField | None = None

    @property
    def state(self) -> FlagState | None:
        """Return its state now."""
        return None if self.flag is None else self.flag.state

    @property
    def version(self) -> int | None:
        """Return its version now."""
        return None if self.flag is None else self.flag.version


def change_many(
    session: Session,
    flag_ids: Sequence[str],
    fields: Mapping[str, Any],
    *,
    actor: str,
    versions: Mapping[str, int] | None = None,
    now: datetime | None = None,
) -> list[Outcome]:
    """Change several flags in the caller's transaction; return an outcome per id, in their order.

    A flag that can't be changed doesn't stop the others, nor one that has another version than in
    `versions`. Raises FieldError for an expiry that is past.
    """
    now = now or utcnow()
    if (expires := fields.get("expires")) is not None:
        check_end(expires, now)
    known = {flag_id for flag_id in flag_ids if is_id(flag_id)}
    # in the order of ids, so that two such requests never deadlock
    query = select(FlagRow).where(FlagRow.id.in_(known)).order_by(FlagRow.id).with_for_update()
    flags = session.scalars(query.execution_options(populate_existing=True))
    by_id = {flag.id: flag for flag in flags}
    outcomes = []
    for flag_id in dict.fromkeys(flag_ids):
        flag = by_id.get(flag_id)
        if flag is None:
            outcomes.append(Outcome(flag_id, "missing"))
            continue
        before = FlagBefore(flag.state, flag.owner, flag.reason, flag.expires_at)
        try:
            _check_version(session, flag, (versions or {}).get(flag_id))
            changed = _apply(session, flag, fields, actor=actor, now=now)
            outcomes.append(Outcome(flag_id, "changed" if changed else "same", flag, before))
        except FieldError as error:
            problem = wrong_field(error.field, error.value, error.reason, error.limit)
            outcomes.append(Outcome(flag_id, "refused", flag, before, problem))
    return outcomes


def _locked(session: Session, flag_id: str) -> FlagRow | None:
    if not is_id(flag_id):
        return None
    return session.get(FlagRow, flag_id, with_for_update=True, populate_existing=True)


def _check_version(session: Session, flag: FlagRow, version: int | None) -> None:
    if version is None or version == flag.version:
        return
    last = flag.history[0]
    if last.version != flag.version:  # renewed evidence is not in the history
        happened = f"a job on {flag.build} found it again at {timestamp(flag.updated_at)}"
    else:
        change = f"set it to {last.after}" if last.before != last.after else None
        reason = f": {last.reason}" if last.reason else ""
        happened = f"{tokens.name_of(session, last.actor)} {change or 'changed owner or reason'}"
        happened += f" at {timestamp(last.at)}{reason}"
    raise Outdated(version, flag.version, happened)


def _apply(
    session: Session, flag: FlagRow, fields: Mapping[str, Any], *, actor: str, now: datetime
) -> bool:
    """Change a locked flag; return whether anything changed.

    Raises FieldError before anything is written.
    """
    values = {"expires_at" if name == "expires" else name: value for name, value in fields.items()}
    before, after = flag.state, FlagState(values.get("state", flag.state))
    if after is FlagState.open and before is FlagState.reopened:
        after = before  # it is open already
    _check(flag, after, values, now)
    values["state"] = after
    if after is not FlagState.acknowledged:
        values["expires_at"] = None
    changed = {name: value for name, value in values.items() if getattr(flag, name) != value}
    if changed:
        detail = {
            name: timestamp(value) if isinstance(value, datetime) else value
            for name, value in fields.items()
        }
        what = "resolved" if "state" in changed and after is FlagState.resolved else "changed"
        audit.record(session, actor=actor, action="flag.changed", subject=flag.id, detail=detail)
        _change(session, flag, changed, what, actor, fields.get("reason"), detail, now)
    return bool(changed)


def _check(flag: FlagRow, after: FlagState, values: Mapping[str, Any], now: datetime) -> None:
    before = flag.state
    if after is not before and after not in MANUAL_CHANGES[before]:
        limit = ", ".join((before, *MANUAL_CHANGES[before]))
        reason = f"a flag that is {before} does not become {after} by hand"
        raise FieldError("state", after.value, reason, limit=limit)
    if after is FlagState.acknowledged:
        check_reason(values.get("reason", flag.reason))
        required = ("owner", "owner", "a name"), ("expires", "expires_at", "a time")
        for name, column, limit in required:
            if not values.get(column, getattr(flag, column)):
                reason = "is required: every acknowledgement has one"
                raise FieldError(name, None, reason, limit=limit)
    expires = values.get("expires_at")
    if expires is not None and after is not FlagState.acknowledged:
        reason, limit = "only an acknowledgement expires", '"state": "acknowledged"'
        raise FieldError("expires", timestamp(expires), reason, limit=limit)
    if expires is not None:
        check_end(expires, now)


def check_reason(reason: str | None) -> None:
    """Raise FieldError unless an acknowledgement has a reason."""
    if not (reason or "").strip():
        limit = f"1 to {MAX_REASON} characters"
        raise FieldError("reason", reason, "is required to acknowledge a flag", limit=limit)


def check_end(expires: datetime, now: datetime, longest: timedelta | None = None) -> None:
    """Raise FieldError unless the end of an acknowledgement or waiver is ahead, and close enough.

    longest: GONOGO_WAIVER_DAYS; None: any.
    """
    if expires <= now:
        raise FieldError("expires", timestamp(expires), "is past", limit=f"after {timestamp(now)}")
    if longest is not None and expires > now + longest:
        limit = f"{longest.days} days from now (GONOGO_WAIVER_DAYS): {timestamp(now + longest)}"
        raise FieldError("expires", timestamp(expires), "is too far away", limit=limit)


# --- changes by the background


def resolve(
    session: Session, flag_id: str, *, version: int, why: str, detail: dict[str, Any], now: datetime
) -> bool:
    """Resolve a flag that was quiet long enough; return whether it did.

    It does nothing if the flag changed since `version` or is already resolved.
    """
    flag = _locked(session, flag_id)
    if flag is None or flag.version != version or flag.state is FlagState.resolved:
        return False
    _automatically(session, flag, "resolved", why, detail, now)
    return True


def expire(session: Session, *, now: datetime) -> int:
    """Reopen flags whose acknowledgement has expired, at most MAX_EXPIRED; return how many."""
    query = _expired(now).limit(MAX_EXPIRED).with_for_update(skip_locked=True)
    flags = session.scalars(query).all()
    for flag in flags:
        why, detail = f"acknowledged until {timestamp(flag.expires_at)}", {"owner": flag.owner}
        _automatically(session, flag, "expired", why, detail, now)
    return len(flags)


def expired(session: Session, *, now: datetime) -> bool:
    """Return whether `expire` has anything to do.

    This read avoids taking the write lock for nothing.
    """
    return session.scalar(_expired(now).with_only_columns(FlagRow.id).limit(1)) is not None


def _expired(now: datetime) -> Select[FlagRow]:
    return select(FlagRow).where(FlagRow.state == FlagState.acknowledged, FlagRow.expires_at <= now)


def _automatically(
    session: Session, flag: FlagRow, what: str, why: str, detail: dict[str, Any], now: datetime
) -> None:
    """Resolve or reopen a flag, which `what` says, and audit it."""
    after = FlagState.resolved if what == "resolved" else FlagState.open
    audited = {"reason": why, **detail}
    audit.record(session, actor=BACKGROUND, action=f"flag.{what}", subject=flag.id, detail=audited)
    values = {"state": after, "expires_at": None}
    _change(session, flag, values, what, BACKGROUND, why, detail, now)


def _set(flag: FlagRow, values: Mapping[str, Any], now: datetime) -> None:
    for name, value in values.items():
        setattr(flag, name, value)
    flag.version += 1
    flag.updated_at = now


def _change(
    session: Session,
    flag: FlagRow,
    values: Mapping[str, Any],
    what: str,
    actor: str,
    reason: str | None,
    detail: dict[str, Any],
    now: datetime,
    **before: FlagState | None,
) -> None:
    """Change a flag, with an entry in its history, and a message where it opens or resolves.

    The entry has the flag's new version, which makes it unique. before: the state before, where it
    isn't the flag's.
    """
    before = {"before": flag.state, **before}
    _set(flag, values, now)
    entry = {"what": what, "actor": actor, "reason": reason, "detail": detail, "at": now}
    session.add(
        FlagChangeRow(flag_id=flag.id, version=flag.version, after=flag.state, **before, **entry)
    )
    topic = TOPICS.get(what)
    if topic is not None:
        key = f"{topic}:{flag.id}:{flag.version}"
        outbox.add(session, topic, key, {"flag": flag.id, "version": flag.version}, now=now)
    session.flush()

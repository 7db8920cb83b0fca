"""Changes of flags other than new evidence.

People acknowledge, resolve and reopen them, acknowledgements expire, and quiet flags resolve.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo.errors import FieldError
from gonogo_service.flags import flag_history
from gonogo_service.flags import store as flags
from gonogo_service.flags.model import FlagRow
from gonogo_service.flags.store import Flag, FlagWithHistory
from gonogo_service.kit import audit
from gonogo_service.kit.database.encoding import timestamp, utcnow
from gonogo_service.kit.database.ids import is_id
from gonogo_service.kit.database.states import FlagState
from gonogo_service.people import store as tokens

FIELDS = ("state", "owner", "reason", "expires")
MANUAL_CHANGES: Mapping[FlagState, tuple[FlagState, ...]] = {
    FlagState.open: (FlagState.acknowledged, FlagState.resolved),
    FlagState.reopened: (FlagState.acknowledged, FlagState.resolved),
    FlagState.acknowledged: (FlagState.open, FlagState.resolved),
    FlagState.resolved: (FlagState.open,),
}
"""State -> the states that a person may set. Only new evidence sets `reopened`."""
ACKNOWLEDGED_FOR = timedelta(days=14)
"""An acknowledgement lasts this long unless a date is given."""
MAX_REASON = 2000
MAX_EXPIRED = 100


class Outdated(FieldError):
    """The flag or waiver has another version than the change expects."""

    def __init__(self, given: int, current: int, happened: str) -> None:
        super().__init__("version", given, f"is outdated: {happened}", limit=current)


def change(
    session: Session,
    flag_id: str,
    fields: dict[str, Any],
    *,
    actor: str,
    version: int | None = None,
    now: datetime | None = None,
) -> FlagWithHistory | None:
    """Set any of state, owner, reason and expires; return the flag with its history, or None.

    The row is locked, so that neither this change nor that of an ending job is lost. Equal values
    make no new version and no entry. Every change goes into the flag's history and the audit log.
    Raises FieldError if the present state doesn't allow the new one, for an acknowledgement without
    owner, reason or end, and for an end that is past or not of an acknowledgement. Raises Outdated
    if `version` is given and not the present one.
    """
    unknown = fields.keys() - set(FIELDS)
    if unknown:
        raise ValueError(f"unknown fields {sorted(unknown)}; allowed: {', '.join(FIELDS)}")
    row = (
        session.get(FlagRow, flag_id, with_for_update=True, populate_existing=True)
        if is_id(flag_id)
        else None
    )
    if row is None:
        return None
    _check_version(session, row, version)
    _apply(session, row, fields, actor=actor, now=now or utcnow())
    return flags.look(session, flag_id)


@dataclass(frozen=True)
class Outcome:
    """The outcome of changing one of several flags."""

    id: str
    outcome: Literal["changed", "same", "refused", "missing"]
    before: Flag | None
    """The flag before."""
    flag: Flag | None
    """The flag now; None if it doesn't exist."""
    problem: FieldError | None = None


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
    now, seen = now or utcnow(), versions or {}
    if (expires := fields.get("expires")) is not None:
        check_end(expires, now)
    known = sorted({flag_id for flag_id in flag_ids if is_id(flag_id)})
    # In the order of ids, so that two such requests never deadlock.
    query = select(FlagRow).where(FlagRow.id.in_(known)).order_by(FlagRow.id)
    rows = {
        row.id: row
        for row in session.scalars(
            query.with_for_update().execution_options(populate_existing=True)
        )
    }
    return [
        _one(session, rows.get(flag_id), flag_id, fields, actor, seen.get(flag_id), now)
        for flag_id in dict.fromkeys(flag_ids)
    ]


def _one(
    session: Session,
    row: FlagRow | None,
    flag_id: str,
    fields: Mapping[str, Any],
    actor: str,
    version: int | None,
    now: datetime,
) -> Outcome:
    if row is None:
        return Outcome(flag_id, "missing", None, None)
    before = flags.of_row(row)
    try:
        _check_version(session, row, version)
        changed = _apply(session, row, fields, actor=actor, now=now)
    except FieldError as problem:
        return Outcome(flag_id, "refused", before, before, problem)
    return Outcome(flag_id, "changed" if changed else "same", before, flags.of_row(row))


def _check_version(session: Session, row: FlagRow, version: int | None) -> None:
    if version is None or version == row.version:
        return
    (newest, *_) = flag_history.of(session, row.id)
    if newest.version != row.version:  # renewed evidence is not in the history
        raise Outdated(
            version,
            row.version,
            f"a job on {row.build} found it again at {timestamp(row.updated_at)}",
        )
    change = (
        f"set it to {newest.after}" if newest.before != newest.after else "changed owner or reason"
    )
    reason = f": {newest.reason}" if newest.reason else ""
    happened = f"{tokens.name_of(session, newest.actor)} {change} at {timestamp(newest.at)}{reason}"
    raise Outdated(version, row.version, happened)


def _apply(
    session: Session, row: FlagRow, fields: Mapping[str, Any], *, actor: str, now: datetime
) -> bool:
    """Change a locked flag; return whether anything changed.

    Raises FieldError before anything is written.
    """
    values = {"expires_at" if name == "expires" else name: value for name, value in fields.items()}
    before = FlagState(row.state)
    after = FlagState(values.get("state", before))
    if after is FlagState.open and before is FlagState.reopened:
        after = before  # it is open already
    _check(row, after, values, now)
    values["state"] = after.value
    if after is not FlagState.acknowledged:
        values["expires_at"] = None
    changed = {name: value for name, value in values.items() if getattr(row, name) != value}
    if not changed:
        return False
    for name, value in changed.items():
        setattr(row, name, value)
    row.version += 1
    row.updated_at = now
    detail = {
        name: timestamp(value) if isinstance(value, datetime) else value
        for name, value in fields.items()
    }
    what = "resolved" if after is not before and after is FlagState.resolved else "changed"
    flag_history.note(
        session,
        row,
        what,
        before.value,
        actor=actor,
        now=now,
        reason=fields.get("reason"),
        detail=detail,
    )
    audit.record(session, actor=actor, action="flag.changed", subject=row.id, detail=detail)
    if what == "resolved":
        flag_history.publish(session, row, "flag.resolved", now=now)
    session.flush()
    return True


def _check(row: FlagRow, after: FlagState, values: Mapping[str, Any], now: datetime) -> None:
    before = FlagState(row.state)
    if after is not before and after not in MANUAL_CHANGES[before]:
        limit = ", ".join((before.value, *MANUAL_CHANGES[before]))
        raise FieldError(
            "state",
            after.value,
            f"a flag that is {before.value} does not become {after.value} by hand",
            limit=limit,
        )
    if after is FlagState.acknowledged:
        check_reason(values.get("reason", row.reason))
        for name, column, limit in (
            ("owner", "owner", "a name"),
            ("expires", "expires_at", "a time"),
        ):
            if not values.get(column, getattr(row, column)):
                raise FieldError(
                    name, None, "is required: every acknowledgement has one", limit=limit
                )
    expires = values.get("expires_at")
    if expires is None:
        return
    if after is not FlagState.acknowledged:
        raise FieldError(
            "expires",
            timestamp(expires),
            "only an acknowledgement expires",
            limit='"state": "acknowledged"',
        )
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


def resolve(
    session: Session, flag_id: str, *, version: int, why: str, detail: dict[str, Any], now: datetime
) -> bool:
    """Resolve a flag that was quiet long enough; return whether it did.

    It does nothing if the flag changed since `version` or is already resolved.
    """
    row = session.get(FlagRow, flag_id, with_for_update=True, populate_existing=True)
    if row is None or row.version != version or row.state == FlagState.resolved:
        return False
    _change_automatically(session, row, FlagState.resolved, "resolved", why, detail, now)
    flag_history.publish(session, row, "flag.resolved", now=now)
    session.flush()
    return True


def expire(session: Session, *, now: datetime) -> int:
    """Reopen flags whose acknowledgement has expired, at most MAX_EXPIRED; return how many."""
    query = select(FlagRow).where(
        FlagRow.state == FlagState.acknowledged, FlagRow.expires_at <= now
    )
    rows = list(session.scalars(query.limit(MAX_EXPIRED).with_for_update(skip_locked=True)))
    for row in rows:
        why = f"acknowledged until {timestamp(row.expires_at)}"
        _change_automatically(
            session, row, FlagState.open, "expired", why, {"owner": row.owner}, now
        )
        flag_history.publish(session, row, "flag.opened", now=now)
    session.flush()
    return len(rows)


def expired(session: Session, *, now: datetime) -> bool:
    """Return whether `expire` has anything to do.

    This read avoids taking the write lock for nothing.
    """
    query = (
        select(FlagRow.id)
        .where(FlagRow.state == FlagState.acknowledged, FlagRow.expires_at <= now)
        .limit(1)
    )
    return session.scalar(query) is not None


def _change_automatically(
    session: Session,
    row: FlagRow,
    after: FlagState,
    what: str,
    why: str,
    detail: dict[str, Any],
    now: datetime,
) -> None:
    before, row.state = row.state, after.value
    row.expires_at, row.updated_at = None, now
    row.version += 1
    flag_history.note(
        session,
        row,
        what,
        before,
        actor=flag_history.BACKGROUND,
        now=now,
        reason=why,
        detail=detail,
    )
    audit.record(
        session,
        actor=flag_history.BACKGROUND,
        action=f"flag.{what}",
        subject=row.id,
        detail={"reason": why, **detail},
    )

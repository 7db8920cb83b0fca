"""What happens to flags beside new evidence: people take them on, close and open them;
acknowledgements expire; quiet ones are resolved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo.errors import FieldError
from gonogo_storage.access import audit
from gonogo_storage.db.encoding import timestamp, utcnow
from gonogo_storage.db.ids import is_id
from gonogo_storage.db.states import FlagState
from gonogo_storage.flags import flag_history, flags
from gonogo_storage.tables import FlagRow

FIELDS = ("state", "owner", "reason", "expires")
BY_HAND: Mapping[FlagState, tuple[FlagState, ...]] = {
    FlagState.open: (FlagState.acknowledged, FlagState.resolved),
    FlagState.reopened: (FlagState.acknowledged, FlagState.resolved),
    FlagState.acknowledged: (FlagState.open, FlagState.resolved),
    FlagState.resolved: (FlagState.open,),
}
"""Where a person may move a flag to. `reopened` is not among them: only new evidence reopens."""
MOST_EXPIRED = 100


class Outdated(ValueError):
    """The flag (the waiver) has another version than the one that the change was made for."""

    def __init__(self, given: int, found: int) -> None:
        self.given, self.found = given, found
        super().__init__(f"version {given} was changed since: it is {found}")


def change(
    session: Session,
    flag_id: str,
    fields: dict[str, Any],
    *,
    actor: str,
    version: int | None = None,
    now: datetime | None = None,
) -> dict[str, Any] | None:
    """Set any of state, owner, reason and expires; the flag with its history, or None when there is
    none.

    The row is locked, so that a job that closes at the same moment neither loses the change nor is
    lost by it. What is equal already makes no new version and no entry. Every change is in the
    flag's history and in the audit. Raises FieldError for a state that the present one does not
    lead to, an expiry that is past or without an acknowledgement; Outdated when `version` is given
    and not the present one.
    """
    unknown = fields.keys() - set(FIELDS)
    if unknown:
        raise ValueError(f"a flag has no {sorted(unknown)} to change")
    row = (
        session.get(FlagRow, flag_id, with_for_update=True, populate_existing=True)
        if is_id(flag_id)
        else None
    )
    if row is None:
        return None
    if version is not None and version != row.version:
        raise Outdated(version, row.version)
    _apply(session, row, fields, actor=actor, now=now or utcnow())
    return flags.look(session, flag_id)


@dataclass(frozen=True)
class Outcome:
    """What became of one flag of several that were to be changed."""

    id: str
    outcome: Literal["changed", "same", "refused", "missing"]
    before: Mapping[str, Any] | None
    """The flag as it was."""
    flag: Mapping[str, Any] | None
    """As it is now; None: there is none."""
    problem: FieldError | None = None


def change_many(
    session: Session,
    flag_ids: Sequence[str],
    fields: Mapping[str, Any],
    *,
    actor: str,
    now: datetime | None = None,
) -> list[Outcome]:
    """`change` for several flags in the caller's transaction, in their order, each id once: one
    that can't be changed holds up no other.

    The same again changes nothing. Raises FieldError for what no flag can become: an expiry that is
    past.
    """
    now = now or utcnow()
    if (expires := fields.get("expires")) is not None:
        check_end(expires, now)
    known = sorted({each for each in flag_ids if is_id(each)})
    query = (
        select(FlagRow).where(FlagRow.id.in_(known)).order_by(FlagRow.id)
    )  # in one order: two such requests never wait for each other
    rows = {
        row.id: row
        for row in session.scalars(
            query.with_for_update().execution_options(populate_existing=True)
        )
    }
    return [
        _one(session, rows.get(each), each, fields, actor, now) for each in dict.fromkeys(flag_ids)
    ]


def _one(
    session: Session,
    row: FlagRow | None,
    flag_id: str,
    fields: Mapping[str, Any],
    actor: str,
    now: datetime,
) -> Outcome:
    if row is None:
        return Outcome(flag_id, "missing", None, None)
    before = flags.as_json(row)
    try:
        changed = _apply(session, row, fields, actor=actor, now=now)
    except FieldError as problem:
        return Outcome(flag_id, "refused", before, before, problem)
    return Outcome(flag_id, "changed" if changed else "same", before, flags.as_json(row))


def _apply(
    session: Session, row: FlagRow, fields: Mapping[str, Any], *, actor: str, now: datetime
) -> bool:
    """Change a flag that is locked; whether anything is another one than before. Raises FieldError
    before anything is written.
    """
    wanted = {"expires_at" if name == "expires" else name: value for name, value in fields.items()}
    before = FlagState(row.state)
    after = FlagState(wanted.get("state", before))
    if after is FlagState.open and before is FlagState.reopened:
        after = before  # it is open already
    _check(before, after, wanted, now)
    wanted["state"] = after.value
    if after is not FlagState.acknowledged:
        wanted["expires_at"] = None
    changed = {name: value for name, value in wanted.items() if getattr(row, name) != value}
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
        flag_history.tell(session, row, "flag.resolved", now=now)
    session.flush()
    return True


def _check(before: FlagState, after: FlagState, wanted: Mapping[str, Any], now: datetime) -> None:
    if after is not before and after not in BY_HAND[before]:
        limit = ", ".join((before.value, *BY_HAND[before]))
        raise FieldError(
            "state",
            after.value,
            f"a flag that is {before.value} does not become {after.value} by hand",
            limit=limit,
        )
    expires = wanted.get("expires_at")
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


def check_end(expires: datetime, now: datetime) -> None:
    """What a person takes on ends in the future. Raises FieldError."""
    if expires <= now:
        raise FieldError("expires", timestamp(expires), "is past", limit=f"after {timestamp(now)}")


def resolve(
    session: Session, flag_id: str, *, version: int, why: str, detail: dict[str, Any], now: datetime
) -> bool:
    """Resolve a flag that was quiet long enough; False, and nothing done, when it changed since
    `version` or is resolved already.
    """
    row = session.get(FlagRow, flag_id, with_for_update=True, populate_existing=True)
    if row is None or row.version != version or row.state == FlagState.resolved:
        return False
    _by_itself(session, row, FlagState.resolved, "resolved", why, detail, now)
    flag_history.tell(session, row, "flag.resolved", now=now)
    session.flush()
    return True


def expire(session: Session, *, now: datetime) -> int:
    """Open again what was acknowledged until a time that has come, a hundred at a time; how
    many.
    """
    query = select(FlagRow).where(
        FlagRow.state == FlagState.acknowledged, FlagRow.expires_at <= now
    )
    rows = list(session.scalars(query.limit(MOST_EXPIRED).with_for_update(skip_locked=True)))
    for row in rows:
        why = f"acknowledged until {timestamp(row.expires_at)}"
        _by_itself(session, row, FlagState.open, "expired", why, {"owner": row.owner}, now)
        flag_history.tell(session, row, "flag.opened", now=now)
    session.flush()
    return len(rows)


def expired(session: Session, *, now: datetime) -> bool:
    """Whether there is anything for `expire` to do (a read, so that the write lock is taken only
    then).
    """
    query = (
        select(FlagRow.id)
        .where(FlagRow.state == FlagState.acknowledged, FlagRow.expires_at <= now)
        .limit(1)
    )
    return session.scalar(query) is not None


def _by_itself(
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
    told = {"reason": why, **detail}
    audit.record(
        session, actor=flag_history.BACKGROUND, action=f"flag.{what}", subject=row.id, detail=told
    )

"""The highest number of each kind of message about a worker or a device.

Only kinds whose order matters have one here: heartbeats and reports on health. Messages about an
attempt are stored once for that attempt (service/gonogo_service/jobs/attempts.py).
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from sqlalchemy import delete
from sqlalchemy.orm import Session

from gonogo_service.hosts.model import MessageNumberRow
from gonogo_service.kit.database.dialect import insert_once

FORGET_AFTER = timedelta(days=8)
"""Longer than the age of any message that is taken."""


class OldNumber(Exception):
    """A message whose number is not above the last one, and which is not the last one again.

    `behind_s` is by how much it is older.
    """

    def __init__(self, words: str, behind_s: float) -> None:
        super().__init__(words)
        self.behind_s = behind_s


def advance(
    session: Session, subject: str, task: str, number: int, digest: str, *, now: datetime
) -> bool:
    """Record a message's number; return False for a message that was taken before.

    Raises OldNumber for a number that is lower than the highest one, or that has another content.
    """
    key = {"subject": subject, "task": task}
    values = {"number": number, "digest": digest, "at": now}
    row = session.get(MessageNumberRow, (subject, task), with_for_update=True)
    if row is None:
        insert_once(session, MessageNumberRow, [{**key, **values, "number": -1, "digest": ""}])
        row = session.get_one(
            MessageNumberRow, (subject, task), with_for_update=True, populate_existing=True
        )
    if (row.number, row.digest) == (number, digest):
        return False
    if number <= row.number:
        behind_s = (row.number - number) / 1e6
        raise OldNumber(f"{subject} has sent one that is {behind_s:.1f} s later", behind_s)
    row.number, row.digest, row.at = number, digest, now
    return True


def remove(session: Session, subjects: Collection[str], task: str) -> None:
    """Delete the numbers of these subjects, none of whose messages is taken any more."""
    rows = MessageNumberRow.subject.in_(subjects), MessageNumberRow.task == task
    session.execute(delete(MessageNumberRow).where(*rows))


def forget(session: Session, *, now: datetime) -> None:
    """Delete the numbers of workers and devices that are silent for longer than messages last."""
    session.execute(delete(MessageNumberRow).where(MessageNumberRow.at < now - FORGET_AFTER))

"""Hosts of devices: added with a code, joined with a token, rotated, revoked."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from gonogo.cli.kit import authority
from gonogo.settings import is_network
from gonogo_service.hosts.model import HostRow
from gonogo_service.kit import audit, networks
from gonogo_service.kit.database import dialect
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import new_id
from gonogo_service.kit.principals import Keys
from gonogo_service.kit.problems import BadField

ANY: Final = ("*",)
"""The patterns of a host that may run attempts of every queue."""
TOKEN_PREFIX: Final = "gnh_"
CODE_PREFIX: Final = "gnc_"
CODE_LIFE: Final = timedelta(minutes=10)
TOKEN_LIFE: Final = timedelta(days=365)
OLD_TOKEN_LIFE: Final = timedelta(minutes=10)
"""Workers of a host notice its new token within this time."""
HEARD_EVERY: Final = timedelta(seconds=30)
"""`heard_at` is only this precise, so that each request doesn't write it."""
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
NAME_IN_WORDS: Final = "1 to 100 letters, digits, dots, hyphens and underscores, a letter first"


_ROOM = 4


class BadCode(Exception):
    """A code that was used, has expired, or that nobody made."""


class Elsewhere(Exception):
    """A host asks from an address that isn't one of its own."""

    def __init__(self, name: str, client: str) -> None:
        super().__init__(
            f"The host {name!r} may ask from its own addresses only, and {client[:100] or 'this'} "
            "is none of them (gonogo hosts show; behind a proxy, GONOGO_PROXIES)."
        )
        self.name = name


@dataclass(frozen=True)
class Issued:
    """A host with a secret that can't be shown again: its code, or its token."""

    host: HostRow
    secret: str


def add(
    session: Session,
    keys: Keys,
    name: str,
    queues: Sequence[str] | None = None,
    *,
    actor: str,
    addresses: Sequence[str] | None = None,
    ca_file: str | None = None,
) -> Issued:
    """Add a host, or let a known one join again; return it with its code.

    `queues` are patterns of the queues whose attempts it may run, `addresses` the networks that it
    may ask from (empty: any); None leaves those of a known host. The code says which authority has
    signed the service's certificate, where `ca_file` has its own. A known host's token works until
    it joins. Raises FieldError or BadField.
    """
    if not NAME.fullmatch(name):
        raise BadField("name", name, "can't be a host's name", limit=NAME_IN_WORDS)
    for address in addresses or ():
        if not is_network(address):
            limit = "such as 192.0.2.7 or 10.1.0.0/16; not all addresses"
            raise BadField("addresses", address, "is no address or network", limit=limit)
    now, code = utcnow(), CODE_PREFIX + secrets.token_urlsafe(24)
    if ca_file is not None:
        code += authority.SEPARATOR + authority.fingerprints(ca_file)[0]
    dialect.lock(session, _ROOM, name)
    row = get(session, name)
    if row is None:
        row = HostRow(id=new_id(), name=name, queues=list(ANY), addresses=[], created_at=now)
        session.add(row)
    row.queues = row.queues if queues is None else list(queues)
    row.addresses = row.addresses if addresses is None else list(addresses)
    row.revoked_at = None
    row.code_hash, row.code_expires_at = keys.digest("host code", code), now + CODE_LIFE
    session.flush()
    detail = {"queues": row.queues, "addresses": row.addresses}
    audit.record(session, actor=actor, action="host.added", subject=name, detail=detail)
    return Issued(row, code)


def join(session: Session, keys: Keys, code: str, *, client: str | None = None) -> Issued:
    """Exchange a code for a token; a code works once.

    client: the address that asks. Raises BadCode, or Elsewhere where the host may not ask from
    there.
    """
    now = utcnow()
    known = HostRow.code_hash == keys.digest("host code", code)
    row = session.scalar(select(HostRow).where(known).with_for_update())
    if row is None or row.code_expires_at is None or row.code_expires_at <= now:
        raise BadCode("this code was used, has expired, or is wrong: `gonogo hosts add` makes one")
    if client is not None and not may_ask(row, client):
        raise Elsewhere(row.name, client)
    row.code_hash = row.code_expires_at = row.old_token_hash = None
    row.joined_at = now
    issued = _give_token(row, keys, now)
    audit.record(session, actor=f"host:{row.name}", action="host.joined", subject=row.name)
    return issued


def may_ask(host: HostRow, client: str) -> bool:
    """Return whether a host may ask from an address."""
    return not host.addresses or networks.is_within(client, host.addresses)


def rotate(session: Session, keys: Keys, token: str) -> Issued | None:
    """Give the host of a token another one; the one before works for ten minutes more.

    None: the host was revoked, or has joined again, since the request was let in.
    """
    now = utcnow()
    row = by_token(session, keys, token, locked=True)
    if row is None:
        return None
    row.old_token_hash, row.old_token_until = row.token_hash, now + OLD_TOKEN_LIFE
    issued = _give_token(row, keys, now)
    audit.record(session, actor=f"host:{row.name}", action="host.rotated", subject=row.name)
    return issued


def _give_token(row: HostRow, keys: Keys, now: datetime) -> Issued:
    token = TOKEN_PREFIX + secrets.token_urlsafe(32)
    row.token_hash, row.token_expires_at = keys.digest("host token", token), now + TOKEN_LIFE
    return Issued(row, token)


def by_token(session: Session, keys: Keys, token: str, *, locked: bool = False) -> HostRow | None:
    """Return the host of a token that works now."""
    digest, now = keys.digest("host token", token), utcnow()
    current = (HostRow.token_hash == digest) & (HostRow.token_expires_at > now)
    old = (HostRow.old_token_hash == digest) & (HostRow.old_token_until > now)
    query = select(HostRow).where(or_(current, old), HostRow.revoked_at.is_(None))
    return session.scalar(query.with_for_update() if locked else query)


def revoke(session: Session, name: str, *, actor: str, reason: str) -> HostRow | None:
    """Delete a host's token, so that nothing of it is taken; None if it doesn't exist."""
    row = session.scalar(select(HostRow).where(HostRow.name == name).with_for_update())
    if row is not None and row.revoked_at is None:
        row.revoked_at = utcnow()
        row.code_hash = row.token_hash = row.old_token_hash = None
        session.flush()
        detail = {"reason": reason}
        audit.record(session, actor=actor, action="host.revoked", subject=name, detail=detail)
    return row


def heard(session: Session, host_id: str, *, now: datetime, clock: float | None) -> None:
    """Record that a host lives, and by how much its clock (seconds since 1970) is wrong."""
    row = session.get_one(HostRow, host_id)
    if row.heard_at is None or now - row.heard_at >= HEARD_EVERY:
        row.heard_at = now
    if clock is None:
        return
    skew_s = round(clock - now.timestamp(), 3)
    is_old = row.clock_at is None or now - row.clock_at >= HEARD_EVERY
    if is_old or row.clock_skew_s is None or abs(row.clock_skew_s - skew_s) >= 1.0:
        row.clock_skew_s, row.clock_at = skew_s, now


def get(session: Session, name: str) -> HostRow | None:
    """Return the host of this name as it is stored now; None if it doesn't exist."""
    query = select(HostRow).where(HostRow.name == name)
    return session.scalar(query.execution_options(populate_existing=True))


def every(session: Session) -> list[HostRow]:
    """Return all hosts, ordered by name, revoked ones as well."""
    return list(session.scalars(select(HostRow).order_by(HostRow.name)))


def flagged(session: Session, since: datetime) -> tuple[tuple[str, datetime, str], ...]:
    """Return name, time and reason of the hosts that were flagged since then, the latest first."""
    query = (
        select(HostRow.name, HostRow.flagged_at, HostRow.flag_reason)
        .where(HostRow.flagged_at >= since)
        .order_by(HostRow.flagged_at.desc(), HostRow.name)
    )
    return tuple((name, at, reason or "") for name, at, reason in session.execute(query) if at)

"""Answers to a host that reaches the broker alone: enroll, rotate its key, tell the time.

A reply is the value of a key that the host's nonce names. The service signs it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

from sqlalchemy.orm import Session

from gonogo_service.hosts import invitations
from gonogo_service.hosts import store as hosts
from gonogo_service.hosts.message_numbers import OldNumber, advance
from gonogo_service.hosts.senders import Sender
from gonogo_service.kit.background_context import BROKER_AWAY, BackgroundContext, log
from gonogo_service.kit.database.encoding import utcnow
from gonogo_workers.queue import (
    HELLO,
    REPLY,
    REPLY_S,
    Message,
    MessageRefused,
    PublicKey,
    proves,
    reply_key,
)

_NONCE = re.compile(r"[0-9a-f]{32}", re.ASCII)


def hello(context: BackgroundContext, message: Message, sender: Sender) -> None:
    """Tell a host the time, and store by how much its clock is wrong."""
    at = message.body.get("at")
    skew_s = at - time.time() if isinstance(at, int | float) and abs(at) < 1e12 else None
    now = utcnow()

    def work(session: Session) -> None:
        try:
            advance(session, sender.name, HELLO, message.number, message.digest, now=now)
        except OldNumber:  # repeated by somebody else, or the host's clock was set back
            return
        hosts.heard(session, sender.id, now=now, clock_skew_s=skew_s)

    context.patiently(work)
    _reply(context, message, {"host": sender.id, "name": sender.name})


def enroll(context: BackgroundContext, message: Message) -> None:
    """Enroll the host that holds the secret of an invitation. A refusal is answered, too."""
    key = _new_key(message)

    def work(session: Session) -> dict[str, Any]:
        try:
            host = invitations.use(session, message.key_id, key_id=key.id, public_key=key.text)
        except ValueError as problem:
            return {"error": str(problem)}
        row = hosts.find_key(session, key.id)
        return {"host": host, "name": "" if row is None else row.name}

    answer = context.patiently(work)
    log.info("host enrollment", **answer)
    _reply(context, message, answer)


def rotate(context: BackgroundContext, message: Message, sender: Sender) -> None:
    """Replace a host's key by the one that it has made. A refusal is answered, too."""
    key = _new_key(message)
    try:
        context.patiently(
            lambda session: hosts.rotate(session, sender.id, key_id=key.id, public_key=key.text)
        )
    except ValueError as problem:
        _reply(context, message, {"error": str(problem)})
        raise MessageRefused("key", str(problem)) from problem
    log.info("host key rotated", host=sender.name)
    _reply(context, message, {"host": sender.id, "name": sender.name})


def _new_key(message: Message) -> PublicKey:
    """Return the key in a message, whose private half the sender has. Raises MessageRefused."""
    body = message.body
    try:
        key = PublicKey.parse(str(body.get("public_key")))
    except ValueError as problem:
        raise MessageRefused("form", f"the public key {problem}") from problem
    if not proves(key, str(body.get("proof")), message.key_id):
        raise MessageRefused("signature", "the sender doesn't have the private key")
    return key


def _reply(context: BackgroundContext, message: Message, body: Mapping[str, Any]) -> None:
    """Answer a message. Raises MessageRefused for a bad nonce.

    Where the broker doesn't take the answer, the host asks again.
    """
    nonce = str(message.body.get("nonce"))
    if not _NONCE.fullmatch(nonce):
        raise MessageRefused("form", "the message has no nonce")
    text = context.sealed(REPLY, {**body, "nonce": nonce, "time": time.time()})
    try:
        with context.redis.pipeline() as pipe:
            pipe.rpush(reply_key(nonce), text)
            pipe.ltrim(reply_key(nonce), 0, 0)
            pipe.expire(reply_key(nonce), REPLY_S)
            pipe.execute()
    except BROKER_AWAY as problem:
        log.warning("a host was not answered; it asks again", task=message.task, error=str(problem))

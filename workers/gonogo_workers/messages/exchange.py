"""A host's questions to the service, through the broker alone: enroll, rotate the key, the time.

The question goes on a queue and names a nonce; the signed answer comes back under that nonce.
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from redis import Redis, RedisError

from gonogo.errors import InfrastructureError
from gonogo_workers import queue
from gonogo_workers.messages import identity
from gonogo_workers.messages.identity import Identity
from gonogo_workers.queue import (
    CLOCK_SKEW_S,
    ENROLL,
    HEARTBEAT_QUEUE,
    HELLO,
    REPLY,
    ROTATE,
    Invitation,
    MessageRefused,
    PrivateKey,
    PublicKey,
    proof,
)

log = logging.getLogger(__name__)

WAIT_S = 30.0
POLL_S = 1
WARN_AFTER_S = 5.0
AGAIN_S, MOST_S = 5.0, 60.0
"""A question is asked again after this time, then after twice as long, and so on: the broker may
have lost it, or its answer."""
PRECISE_S = 0.25
MAX_REPEATS = 4


class NoAnswer(InfrastructureError):
    """The service didn't answer in time."""


@dataclass(frozen=True)
class Answer:
    """An answer of the service, and when it came by this host's clock."""

    body: Mapping[str, Any]
    skew_s: float
    """The seconds by which this host's clock is ahead of the service's."""
    uncertainty_s: float
    """Half of the time that the exchange took."""


def ask(
    client: Redis,
    key: PrivateKey,
    service: PublicKey,
    task: str,
    body: Mapping[str, Any],
    *,
    wait_s: float = WAIT_S,
    waiting: Callable[[], None] = lambda: None,
) -> Answer:
    """Ask the service until it answers, and return its answer.

    `waiting` is called once when it takes long. Raises NoAnswer, and InfrastructureError when the
    broker can't be reached.
    """
    nonce, began = secrets.token_hex(16), time.monotonic()
    asked_at = time.time()
    question = {**body, "nonce": nonce, "at": asked_at}
    warned, again_after_s, pause_s = False, 0.0, AGAIN_S
    try:
        while True:
            if time.monotonic() - began >= again_after_s:
                queue.send(client, key, HEARTBEAT_QUEUE, task, question)
                again_after_s, pause_s = again_after_s + pause_s, min(2 * pause_s, MOST_S)
            item: Any = client.blpop([queue.reply_key(nonce)], timeout=POLL_S)
            passed = time.monotonic() - began
            if item is not None:
                answered = _checked(item[1], service, nonce, asked_at, passed)
                if answered is not None:
                    return answered
            if passed >= wait_s:
                raise NoAnswer(
                    f"the service didn't answer within {wait_s:.0f} s: `gonogo background` doesn't"
                    " run, it doesn't know this host's key (revoked, or enrolled again"
                    " elsewhere), or it has another GONOGO_SECRET_KEY than when this host enrolled"
                )
            if passed >= WARN_AFTER_S and not warned:
                warned = True
                waiting()
    except RedisError as problem:
        raise InfrastructureError(f"the broker can't be reached: {problem}") from problem


def _checked(
    item: bytes, service: PublicKey, nonce: str, asked_at: float, passed: float
) -> Answer | None:
    """Return the answer in an item, None for one that isn't the service's."""
    try:
        text = item[: queue.MAX_ORDER_BYTES + 1].decode("ascii", "replace")
        message = queue.unseal(text, REPLY, service.named)
    except MessageRefused as problem:
        log.warning("an answer was refused: %s", problem)
        return None
    if message.body.get("nonce") != nonce:
        log.warning("an answer was refused: it is for another question")
        return None
    half = passed / 2
    return Answer(message.body, asked_at + half - float(message.body["time"]), half)


def hello(
    client: Redis,
    me: Identity,
    *,
    wait_s: float = WAIT_S,
    waiting: Callable[[], None] = lambda: None,
) -> Answer:
    """Ask the service for the time. Raises as `ask` does.

    The first answer may have waited for a service that was just starting, so a slow exchange is
    repeated.
    """
    best = ask(client, me.key, me.service, HELLO, {}, wait_s=wait_s, waiting=waiting)
    for _ in range(MAX_REPEATS):
        if best.uncertainty_s <= PRECISE_S:
            break
        again = ask(client, me.key, me.service, HELLO, {}, wait_s=wait_s, waiting=waiting)
        best = min(best, again, key=lambda answer: answer.uncertainty_s)
    return best


def check_clock(answer: Answer) -> None:
    """Raise InfrastructureError if this host's clock is wrong by more than is allowed."""
    if abs(answer.skew_s) - answer.uncertainty_s > CLOCK_SKEW_S:
        direction = "ahead of" if answer.skew_s > 0 else "behind"
        raise InfrastructureError(
            f"this host's clock is {abs(answer.skew_s):.0f} s {direction} the service's; allowed:"
            f" {CLOCK_SKEW_S:.0f} s; set it, for example with chrony or `timedatectl set-ntp true`"
        )


def enroll(client: Redis, code: str, folder: Path, *, wait_s: float = WAIT_S) -> Identity:
    """Enroll this host with a one-time code, and write its identity into `folder`.

    Raises ValueError for a code that isn't one, InfrastructureError where the service refuses it or
    doesn't answer.
    """
    invitation = Invitation.parse(code)
    # kept until the service has answered: a lost answer must not cost the code
    pending = folder / "enrolling.key"
    key = _pending_key(pending)
    seal_with = invitation.key
    body = {"public_key": key.public.text, "proof": proof(key, seal_with.id)}
    answer = ask(client, seal_with, invitation.service, ENROLL, body, wait_s=wait_s)
    if "error" in answer.body:
        pending.unlink(missing_ok=True)
        raise InfrastructureError(
            f"the service refused to enroll this host: {answer.body['error']}"
        )
    me = Identity(str(answer.body["host"]), str(answer.body["name"]), key, invitation.service)
    me.save(folder)
    pending.unlink(missing_ok=True)
    return me


def rotate(client: Redis, folder: Path, *, wait_s: float = WAIT_S) -> Identity:
    """Replace this host's key; running workers go on with the new one.

    The new key is on disk before the service knows it. If an earlier rotation was cut off, this one
    ends it. Raises InfrastructureError, also where the service refuses it: it allows one an hour.
    """
    me = identity.load(folder)
    if me.next_key is not None:
        try:
            hello(client, replace(me, key=me.next_key), wait_s=min(wait_s, 5.0))
        except NoAnswer:
            log.info("the service doesn't know the key of an earlier rotation")
        else:
            return _promoted(me, folder)
    key = me.next_key or PrivateKey.generate()
    me = replace(me, next_key=key)
    me.save(folder)
    body = {"public_key": key.public.text, "proof": proof(key, me.key.id)}
    answer = ask(client, me.key, me.service, ROTATE, body, wait_s=wait_s)
    if "error" in answer.body:
        raise InfrastructureError(f"the service refused the new key: {answer.body['error']}")
    return _promoted(me, folder)


def _promoted(me: Identity, folder: Path) -> Identity:
    assert me.next_key is not None
    rotated = replace(me, key=me.next_key, next_key=None)
    rotated.save(folder)
    return rotated


def _pending_key(path: Path) -> PrivateKey:
    try:
        return PrivateKey.parse(path.read_text().strip())
    except (OSError, ValueError):
        key = PrivateKey.generate()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(key.text)
    return key

"""The public keys of hosts and invitations, read from the database and remembered for moments."""

from __future__ import annotations

from threading import Lock

from cachetools import TTLCache

from gonogo_service.hosts import invitations
from gonogo_service.hosts import store as hosts
from gonogo_service.hosts.store import HostKey
from gonogo_service.kit.background_context import BackgroundContext
from gonogo_workers.queue import ENROLL, Message, MessageRefused, PublicKey, unseal

KNOWN_S = 2.0
"""A revoked host is refused after this time at the latest."""
MAX_KEYS = 4096


class Keyring:
    """Unseals the messages of hosts."""

    def __init__(self, context: BackgroundContext) -> None:
        self._context = context
        # only keys that exist: a new one must be known at once
        self._known: TTLCache[tuple[str, bool], HostKey] = TTLCache(MAX_KEYS, KNOWN_S)
        self._lock = Lock()

    def unseal(self, task: str, text: str) -> tuple[Message, HostKey]:
        """Return a message and its sender.

        Only an invitation may enroll, and it may do nothing else. Raises MessageRefused, and what
        the database raises.
        """
        senders: list[HostKey] = []

        def find(key_id: str) -> PublicKey | None:
            key = self._find(key_id, task == ENROLL)
            if key is None:
                return None
            senders.append(key)
            return PublicKey.parse(key.public_key)

        try:
            message = unseal(text, task, find)
        except MessageRefused as problem:
            # who holds no key may name any: only a signature says whose message it is
            is_known = senders and problem.reason not in ("key", "signature")
            raise Refused(
                problem.reason, str(problem), senders[0].name if is_known else ""
            ) from problem
        sender = senders[0]
        retired_at = sender.retired_at
        if retired_at is not None and message.number / 1e6 > retired_at.timestamp():
            raise Refused("key", f"{sender.name} sealed it with a key that is retired", sender.name)
        return message, sender

    def _find(self, key_id: str, is_invitation: bool) -> HostKey | None:
        with self._lock:
            key = self._known.get((key_id, is_invitation))
        if key is None:
            find = invitations.find_key if is_invitation else hosts.find_key
            key = self._context.patiently_reading(lambda session: find(session, key_id))
            if key is not None:
                with self._lock:
                    self._known[key_id, is_invitation] = key
        return key


class Refused(MessageRefused):
    """A refused message with its sender's name; "" for an unknown sender."""

    def __init__(self, reason: str, words: str, sender: str) -> None:
        super().__init__(reason, words)
        self.sender = sender

"""Places of bodies on their way: of each sender a few, and none for those who keep others out."""

from __future__ import annotations

from typing import Protocol


class Arriving(Protocol):
    """A body that holds a place."""

    def is_arriving(self) -> bool:
        """Return whether its sender is due; else it has arrived, or is answered."""

    def displace(self) -> None:
        """Refuse the rest of it."""


class BodyPlaces:
    """The bodies of each group and sender, oldest first.

    Where a group's places are all taken, the oldest body that is still on its way, of the sender
    that has most, makes room. GitHub's bodies arrive within a tenth of a second, so it is a slow
    one. A body that has arrived is never displaced.
    """

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, dict[Arriving, None]]] = {}
        self._owners: dict[Arriving, tuple[str, str]] = {}

    def take(self, body: Arriving, group: str, sender: str, *, most: int, of_sender: int) -> bool:
        """Take a place for a body, and say whether there is one."""
        senders = self._groups.setdefault(group, {})
        count = len(senders.get(sender, ()))
        if count >= of_sender:
            return False
        if sum(map(len, senders.values())) >= most and not self._make_room(senders, count):
            return False
        senders.setdefault(sender, {})[body] = None
        self._owners[body] = group, sender
        return True

    def give_back(self, body: Arriving) -> None:
        """Free the place of a body, if it still has it."""
        owner = self._owners.pop(body, None)
        if owner is None:
            return
        group, sender = owner
        bodies = self._groups[group][sender]
        del bodies[body]
        if not bodies:
            del self._groups[group][sender]

    def _make_room(self, senders: dict[str, dict[Arriving, None]], count: int) -> bool:
        """Displace a body of a sender that has more than `count`. Say whether there was one."""
        for bodies in sorted(senders.values(), key=len, reverse=True):
            if len(bodies) <= count:
                return False
            for body in bodies:
                if body.is_arriving():
                    self.give_back(body)
                    body.displace()
                    return True
        return False

"""A host's identity: its name, its private key, and the service's public key, in one file.

Every worker of the host uses the same file, which its owner alone can read.
"""

from __future__ import annotations

import json
import os
import stat
import threading
from dataclasses import dataclass, field
from pathlib import Path

from gonogo.errors import InfrastructureError
from gonogo_workers.queue import PrivateKey, PublicKey

FILE = "host.json"


@dataclass(frozen=True)
class Identity:
    """A host that is enrolled."""

    id: str
    name: str
    """The first part of its devices' and workers' names."""
    key: PrivateKey
    service: PublicKey
    """The key that checks the service's signatures."""
    next_key: PrivateKey | None = field(default=None, repr=False)
    """A key that the host has made and the service may know by now."""

    def save(self, folder: Path) -> None:
        """Write the file, for its owner only. Raises OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        content = {
            "id": self.id,
            "name": self.name,
            "private_key": self.key.text,
            "service_key": self.service.text,
        }
        if self.next_key is not None:
            content["next_private_key"] = self.next_key.text
        part = folder / f"{FILE}.{os.getpid()}"
        part.unlink(missing_ok=True)
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(content, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        part.replace(folder / FILE)


def load(folder: Path) -> Identity:
    """Return the identity in a folder. Raises InfrastructureError with the remedy."""
    path = folder / FILE
    try:
        mode = path.stat().st_mode
        content = json.loads(path.read_text())
    except FileNotFoundError:
        raise InfrastructureError(
            f"this host is not enrolled: {path} doesn't exist; an admin runs `gonogo hosts invite"
            " NAME`, then run `gonogo hosts enroll` with that code here (manual: devices)"
        ) from None
    except (OSError, ValueError) as problem:
        raise InfrastructureError(f"{path} can't be read: {problem}") from problem
    if stat.S_IMODE(mode) & 0o077:
        raise InfrastructureError(
            f"{path} holds a private key and is open to others (mode {stat.S_IMODE(mode):04o});"
            f" allowed: 0600; run: chmod 600 {path}"
        )
    try:
        following = content.get("next_private_key")
        return Identity(
            str(content["id"]),
            str(content["name"]),
            PrivateKey.parse(content["private_key"]),
            PublicKey.parse(content["service_key"]),
            None if following is None else PrivateKey.parse(following),
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        # the value is not shown: it may be a part of a key
        raise InfrastructureError(
            f"{path} is damaged; enroll this host again (`gonogo hosts invite`, then `enroll`)"
        ) from None


class CurrentIdentity:
    """The identity of a running worker, read again when its file changes.

    So a worker goes on when the host's key is replaced.
    """

    def __init__(self, folder: Path) -> None:
        """Raise InfrastructureError for a host that isn't enrolled."""
        self._folder = folder
        self._lock = threading.Lock()
        self._seen = self._state()
        self._identity = load(folder)

    @property
    def current(self) -> Identity:
        """The identity of now; the last one while the file can't be read."""
        with self._lock:
            seen = self._state()
            if seen != self._seen:
                try:
                    self._identity = load(self._folder)
                    self._seen = seen
                except InfrastructureError:
                    pass  # half written, or removed: the service refuses what it doesn't know
            return self._identity

    def _state(self) -> tuple[int, int] | None:
        try:
            status = (self._folder / FILE).stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino

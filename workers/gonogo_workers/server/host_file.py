"""A host's name, its service and its token, in one file that its owner alone can read."""

from __future__ import annotations

import contextlib
import json
import stat
import threading
from dataclasses import asdict, dataclass, field
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from gonogo.errors import FieldError, InfrastructureError
from gonogo.settings import secrets

FILE = "host.json"


@dataclass(frozen=True)
class Host:
    """A host that has joined.

    Attributes:
        url: the service's address, without a slash at its end.
        name: the first part of its devices' and workers' names.
        token: what it shows to the service; never printed.
    """

    url: str
    name: str
    token: str = field(repr=False)

    def save(self, folder: Path) -> None:
        """Write the file, for its owner only. Raises OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        secrets.write_file(folder / FILE, json.dumps(asdict(self), indent=1))


def checked_url(url: str) -> str:
    """Return a service's address without its slash.

    Raises FieldError unless it is https, or http on loopback: a token is never sent in the clear.
    """
    with contextlib.suppress(ValueError):  # such as a bracket that isn't closed
        parts = urlsplit(url)
        is_local = parts.scheme == "http" and is_loopback(parts.hostname or "")
        if is_local or (parts.scheme == "https" and parts.hostname):
            return url.rstrip("/")
    raise FieldError("url", url, "must be https", limit="https://..., or http on loopback")


def is_loopback(name: str) -> bool:
    """Whether a host's name or address is this machine's own."""
    try:
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False


def load(folder: Path) -> Host:
    """Return the host of a folder. Raises InfrastructureError with the remedy."""
    path = folder / FILE
    try:
        mode = path.stat().st_mode
        content = json.loads(path.read_text())
    except FileNotFoundError:
        raise InfrastructureError(
            f"this host has not joined a service: {path} doesn't exist; an admin runs `gonogo hosts"
            " add NAME`, then run `gonogo hosts join URL CODE` here (manual: devices)"
        ) from None
    except (OSError, ValueError) as problem:
        raise InfrastructureError(f"{path} can't be read: {problem}") from problem
    if stat.S_IMODE(mode) & 0o077:
        raise InfrastructureError(
            f"{path} holds a token and is open to others (mode {stat.S_IMODE(mode):04o});"
            f" allowed: 0600; run: chmod 600 {path}"
        )
    try:
        token = str(content["token"])
        if not (token.isascii() and token.isprintable()):
            raise FieldError("token", None, "fits no header")  # whose refusal would show it
        return Host(checked_url(str(content["url"])), str(content["name"]), token)
    except (KeyError, TypeError, FieldError):
        # the content is not shown: it may be a part of the token
        raise InfrastructureError(
            f"{path} is damaged; join again (`gonogo hosts add`, then `gonogo hosts join`)"
        ) from None


class CurrentHost:
    """The host of a running worker, read again when its file changes: a token may be rotated."""

    def __init__(self, folder: Path) -> None:
        """Raise InfrastructureError for a host that hasn't joined."""
        self._folder = folder
        self._lock = threading.Lock()
        self._seen = self._state()
        self._host = load(folder)

    @property
    def current(self) -> Host:
        """The host of now; the last one while the file can't be read."""
        with self._lock:
            seen = self._state()
            if seen != self._seen:
                try:
                    self._host = load(self._folder)
                    self._seen = seen
                except InfrastructureError:
                    pass  # half written, or removed: the service refuses what it doesn't know
            return self._host

    def _state(self) -> tuple[int, int] | None:
        try:
            status = (self._folder / FILE).stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino

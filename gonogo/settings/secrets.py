"""Where secrets come from: a file, a systemd credential, a descriptor, or the environment.

A process's first environment can be read in /proc for as long as it lives, even after the process
has changed it. So a secret should come from a file that only its owner reads (GONOGO_X_FILE), or
from a credential of systemd. `gonogo up` hands secrets to its children through a pipe.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Mapping, MutableMapping
from pathlib import Path

DESCRIPTOR = "GONOGO_SECRETS_FD"
"""The variable with the number of an open pipe: one JSON object of settings and their values."""
CREDENTIALS = "CREDENTIALS_DIRECTORY"
"""The folder in which systemd puts a service's credentials: `gonogo_secret_key` and the like."""
FILE_SUFFIX = "_FILE"
MAX_BYTES = 64 * 2**10

_received: dict[str, str] = {}


class SettingsError(Exception):
    """A setting is wrong. The message names the variable and what is allowed, never the value."""


def variable(name: str) -> str:
    """Return the environment variable of a setting."""
    return f"GONOGO_{name.upper()}"


def receive(environ: MutableMapping[str, str]) -> None:
    """Keep the values that the starting process handed over, by variable, and close the pipe."""
    number = environ.pop(DESCRIPTOR, None)
    if number is None:
        return
    try:
        with os.fdopen(int(number), "rb") as file:
            values = json.loads(file.read(MAX_BYTES))
        _received.update({str(name): str(value) for name, value in values.items()})
    except (OSError, ValueError, AttributeError):
        raise SettingsError(
            f"{DESCRIPTOR}: no secrets come from this descriptor; only GoNoGo sets this variable"
        ) from None


def read(environ: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Return the values of these settings that don't stand in the environment itself, by name.

    Raises SettingsError where a file can't be read, others may read it, or two places have a value.
    """
    values: dict[str, str] = {}
    for name in names:
        named = variable(name)
        if named in _received and not environ.get(named):
            values[name] = _received[named]
        elif place := environ.get(named + FILE_SUFFIX):
            if environ.get(named):
                raise SettingsError(f"{named} and {named}{FILE_SUFFIX} are both set: unset one")
            values[name] = read_file(place, named + FILE_SUFFIX)
        elif not environ.get(named) and (folder := environ.get(CREDENTIALS)):
            credential = os.path.join(folder, named.lower())
            if os.path.exists(credential):
                values[name] = read_file(credential, named.lower())
    return values


def read_file(path: str, said_by: str) -> str:
    """Return a secret file's text without its last line break.

    `said_by` names the setting in a message. Raises SettingsError where it can't be read, is empty
    or too large, or where other users may read or change it.
    """
    try:
        # O_NONBLOCK: a pipe that nobody writes to must not stop the start for ever
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            if stat.S_ISREG(status.st_mode):
                _check_owner(path, status, said_by)
            os.set_blocking(file.fileno(), True)
            text = file.read(MAX_BYTES + 1).decode()
    except OSError as problem:
        raise SettingsError(
            f"{said_by}: {path} can't be read ({problem.strerror}); allowed: a file of this user, "
            "mode 0400 or 0600"
        ) from None
    except ValueError:
        raise SettingsError(f"{said_by}: {path} is not UTF-8 text") from None
    if len(text) > MAX_BYTES:
        raise SettingsError(f"{said_by}: {path} is larger than {MAX_BYTES} bytes")
    text = text.removesuffix("\n").removesuffix("\r")
    if not text:
        raise SettingsError(f"{said_by}: {path} is empty; write the secret into it")
    return text


def write_file(path: Path, text: str) -> None:
    """Put a secret into a file for its owner only, at once and as a whole. Raises OSError."""
    part = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _check_owner(path: str, status: os.stat_result, said_by: str) -> None:
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o027:
        who = "every user of this machine" if mode & 0o007 else "its group"
        raise SettingsError(
            f"{said_by}: {who} may read or change {path} (mode {mode:04o}); "
            "allowed: 0400, 0600, or 0440 for a group of its own: chmod 600 it"
        )
    if status.st_uid not in (0, os.geteuid()):
        raise SettingsError(
            f"{said_by}: {path} belongs to user {status.st_uid}; allowed: this user, or root"
        )

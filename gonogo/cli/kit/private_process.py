"""Keeps a process's secrets from the programs that it starts: kernels are other people's code.

Programs of the same user may read a process's first environment, its memory and its descriptors in
/proc. So a command that runs kernels, or that stands above one that does, starts itself again
without secrets in its environment (they come through a pipe), and is not dumpable: then /proc shows
them to root only. This module runs before everything else and imports almost nothing.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from collections.abc import Mapping
from typing import Final

DESCRIPTOR: Final = "GONOGO_SECRETS_FD"
"""The variable that tells `gonogo.settings.secrets.receive` where the pipe is."""
PIPE_BYTES: Final = 64 * 2**10
"""A pipe holds this much before a writer must wait; nobody reads while we write."""
SECRETS: Final = frozenset(
    {
        "GONOGO_BROKER_URL",
        "GONOGO_CI_WEBHOOK_SECRET",
        "GONOGO_DATABASE_URL",
        "GONOGO_GITHUB_APP_KEY",
        "GONOGO_GITHUB_TOKEN",
        "GONOGO_GITHUB_WEBHOOK_SECRET",
        "GONOGO_SECRET_KEY",
        "GONOGO_TOKEN",
        "GONOGO_WEBHOOK_SECRET",
    }
)
"""The variables of secret settings. A list here, because loading the settings takes long; a test
compares the two."""
COMMANDS: Final = frozenset(
    {"up", "demo", "serve", "background", "worker", "check", "gauge", "doctor"}
)
"""The commands that run kernels, that start one that does, or that run beside one for long."""
_PR_SET_DUMPABLE: Final = 4


def protect() -> None:
    """Hide this process's environment, memory and descriptors from other programs of its user.

    Where secrets are in the environment, the program starts again without them: it keeps its
    process id. Does nothing for other commands, and in a process that is no `gonogo` command.
    """
    if not COMMANDS.intersection(sys.argv[1:2]) or sys.platform != "linux" or not _is_command():
        return
    secrets = {name: os.environ[name] for name in SECRETS if os.environ.get(name)}
    if secrets:
        environment = {name: value for name, value in os.environ.items() if name not in SECRETS}
        try:
            descriptor = hand_over(secrets)
        except ValueError as problem:
            raise SystemExit(f"gonogo: {problem}") from None
        os.set_inheritable(descriptor, True)
        environment[DESCRIPTOR] = str(descriptor)
        # the interpreter's own arguments stay: -P keeps the current folder off the path
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)
    undumpable()


def undumpable() -> None:
    """Let only root read this process in /proc, trace it, or find it in a core dump."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def hand_over(values: Mapping[str, str]) -> int:
    """Return a pipe from which another process reads these values, by variable, once.

    Raises ValueError when they don't fit into a pipe.
    """
    data = json.dumps(dict(values)).encode()
    if len(data) >= PIPE_BYTES:
        raise ValueError(
            f"the secrets in the environment have {len(data)} bytes; allowed: {PIPE_BYTES - 1}; "
            "name files instead, such as GONOGO_GITHUB_APP_KEY_FILE"
        )
    reader, writer = os.pipe()
    with os.fdopen(writer, "wb") as file:
        file.write(data)
    return reader


def without(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without our secrets, and without the places where they are."""
    hidden = {*SECRETS, *(f"{name}_FILE" for name in SECRETS), DESCRIPTOR, "CREDENTIALS_DIRECTORY"}
    return {name: value for name, value in environment.items() if name not in hidden}


def _is_command() -> bool:
    """Return whether Python was started for this command line: not by a test, or another program.

    Only then may this process be replaced.
    """
    words = len(sys.argv) - 1
    before, arguments = sys.orig_argv[: len(sys.orig_argv) - words], sys.orig_argv[-words:]
    return arguments == sys.argv[1:] and (
        before[-2:] == ["-m", "gonogo.cli"] or os.path.basename(before[-1]).startswith("gonogo")
    )

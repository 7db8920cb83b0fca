"""Runs a program of the host (a reset, tt-smi, tt-triage) within a deadline.

No process of it is left behind, and the end of its output is kept.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shlex
import subprocess
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gonogo_workers.executors.child_user import child_user
from gonogo_workers.executors.environment import child_environment, command_environment
from gonogo_workers.executors.kernel_host import HOST_RUN_VARIABLE, TERM_GRACE_S
from gonogo_workers.executors.reaping import FAMILY, kill_group, kill_marked

KEPT_BYTES = 64 * 1024
MAX_OUTPUT_BYTES = 64 * 2**20
"""A file size limit: the system ends a program that prints without end, and no disk fills up."""


@dataclass(frozen=True)
class Done:
    """The end of a program: its exit status and its output.

    The status is None if it could not be started, or was killed at its deadline.
    """

    status: int | None
    output: str
    trouble: str | None

    @property
    def ok(self) -> bool:
        """Return whether it ended by itself with status 0."""
        return self.trouble is None


def run(
    words: Sequence[str],
    deadline_s: float,
    *,
    environment: Mapping[str, str] | None = None,
    whole: bool = False,
    folder: str | None = None,
    trusted: bool = False,
) -> Done:
    """Run a program and wait for its end; also kill everything that it started.

    Never raises: `trouble` says why it could not start or did not end. `whole` keeps all of its
    output instead of the last 64 KiB. Processes in sessions of their own are killed, too. A
    program runs as kernels do, because it may be a build's own (its interpreter, its tt-triage).
    `trusted`: it is a command of this host's settings, and runs as the worker's user.
    """
    mark = uuid.uuid4().hex
    user = None if trusted else child_user()
    inherited = command_environment() if trusted else child_environment()
    identity = {} if user is None else user.variables
    env = {**inherited, **identity, **(environment or {}), HOST_RUN_VARIABLE: mark}
    with tempfile.TemporaryFile() as out:
        try:
            process = FAMILY.start(
                lambda: subprocess.Popen(
                    list(words),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    env=env,
                    cwd=folder,
                    **({} if user is None else user.start_options),
                ),
                lambda started: started.pid,
            )
        except (OSError, ValueError) as problem:
            reason = getattr(problem, "strerror", None) or problem
            return Done(None, "", f"{words[0]} can't be started: {reason}")
        _limit_output(process.pid)
        trouble: str | None = None
        pidfd = os.pidfd_open(process.pid)
        try:
            status: int | None = process.wait(deadline_s)
            if status:
                ended = "ended with status" if status > 0 else "was ended by signal"
                trouble = f"{words[0]} {ended} {abs(status)}"
        except subprocess.TimeoutExpired:
            status, trouble = None, f"{words[0]} did not end within {deadline_s:g} s"
            kill_group(process.pid, pidfd, TERM_GRACE_S)
            process.wait()
        finally:
            os.close(pidfd)
            FAMILY.ended(process.pid)
        kill_marked(HOST_RUN_VARIABLE, mark, user)
        size = out.seek(0, os.SEEK_END)
        out.seek(0 if whole else max(0, size - KEPT_BYTES))
        return Done(status, out.read().decode("utf-8", "replace").replace("\x00", ""), trouble)


def words_of(command: str, facts: Mapping[str, object]) -> tuple[str, ...]:
    """Return a setting's command as words, with `{index}`, `{pci}` and the like replaced.

    There is no shell: a replaced name is one word, never code. Raises ValueError for an open
    quotation mark or an unknown name in braces.
    """
    try:
        values = {key: "" if value is None else value for key, value in facts.items()}
        return tuple(word.format_map(values) for word in shlex.split(command))
    except (KeyError, IndexError, AttributeError) as problem:
        known = ", ".join("{" + name + "}" for name in facts)
        raise ValueError(f"unknown name {problem}; allowed: {known}") from problem


def _limit_output(pid: int) -> None:
    # prlimit works on a running program, so no Python code has to run between fork and exec
    with contextlib.suppress(OSError, ValueError):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (MAX_OUTPUT_BYTES, MAX_OUTPUT_BYTES))

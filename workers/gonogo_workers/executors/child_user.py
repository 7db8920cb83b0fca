"""The second user, as whom kernels run where GONOGO_CHILD_USER names one.

Without one, a kernel's process may read every file of the worker's user, and signal its processes.
With one it reaches only its private folder, which both users share through the second user's group:
the worker's user must be a member of that group. Starting, ending and cleaning up after another
user's processes needs root, or CAP_SETUID, CAP_SETGID and CAP_KILL.
"""

from __future__ import annotations

import contextlib
import ctypes
import grp
import os
import pwd
import shutil
import stat
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gonogo.errors import FieldError
from gonogo.settings import load as load_settings

SETTING: Final = "GONOGO_CHILD_USER"
SHARED_FOLDER: Final = 0o2770
"""Set-group-id: what either user makes in the folder belongs to the shared group."""
SHARED_FILE: Final = 0o660
CLEAN_UP_S: Final = 10.0
_CAPABILITIES: Final = {"CAP_KILL": 5, "CAP_SETGID": 6, "CAP_SETUID": 7}
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4

_CLEAN_UP: Final = """
import os, shutil, signal, sys
folder, mark = sys.argv[1], sys.argv[2].encode()
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            if mark and mark in file.read().split(b"\\0") and int(pid) != os.getpid():
                os.kill(int(pid), signal.SIGKILL)
    except OSError:
        pass
for name in os.listdir(folder) if folder else ():
    path = os.path.join(folder, name)
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
"""
"""The work that only the second user may do.

It looks into the environments of its processes, and deletes in folders that they made.
"""


@dataclass(frozen=True)
class ChildUser:
    """The user and the groups of kernels' processes."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str

    @property
    def start_options(self) -> dict[str, Any]:
        """The options of subprocess.Popen that start a program as this user."""
        groups = list(self.groups)
        # the worker reads what its kernels write
        return {"user": self.uid, "group": self.gid, "extra_groups": groups, "umask": 0o022}

    @property
    def variables(self) -> dict[str, str]:
        """The variables that its programs must not inherit from the worker's user."""
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name}

    def share(self, folder: Path) -> None:
        """Let both users work in a folder. Raises FieldError where the worker's user may not."""
        with contextlib.suppress(PermissionError):
            os.chown(folder, -1, self.gid)
            os.chmod(folder, SHARED_FOLDER)
        status = os.stat(folder)
        # the system drops the set-group-id bit, without a word, for who is no member
        if (status.st_gid, stat.S_IMODE(status.st_mode)) != (self.gid, SHARED_FOLDER):
            raise FieldError(
                SETTING,
                self.name,
                f"the worker's user is no member of group {self.gid}, which is this user's",
                limit="a member, such as by SupplementaryGroups= or group_add",
            )

    def clean_up(self, folder: Path | None, variable: str = "", value: str = "") -> None:
        """Kill this user's processes with that variable; delete the folders that it made here."""
        mark = f"{variable}={value}" if value else ""
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(
                [sys.executable, "-I", "-S", "-c", _CLEAN_UP, str(folder or ""), mark],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                cwd="/",
                timeout=CLEAN_UP_S,
                check=False,
                **self.start_options,
            )


def child_user() -> ChildUser | None:
    """Return the second user of this host; None where kernels run as the worker's user.

    Raises FieldError for an unknown user, root, the worker's own, or one that we may not become.
    """
    setting = load_settings().child_user
    if setting is None:
        return None
    name, _, named = setting.partition(":")
    try:
        entry = pwd.getpwuid(int(name)) if name.isdigit() else pwd.getpwnam(name)
    except KeyError:
        raise FieldError(SETTING, name, "no such user", limit="a user of this host") from None
    try:
        further = [
            int(group) if group.isdigit() else grp.getgrnam(group).gr_gid
            for group in filter(None, named.split(","))
        ]
    except KeyError as problem:
        raise FieldError(SETTING, setting, f"no such group: {problem}", limit="group,...") from None
    if entry.pw_uid in (0, os.getuid()):
        who = "root" if entry.pw_uid == 0 else "the worker's own user"
        raise FieldError(SETTING, name, f"is {who}", limit="a user without any other use")
    missing = [capability for capability, bit in _CAPABILITIES.items() if not _effective(bit)]
    if missing:
        raise FieldError(
            SETTING,
            name,
            f"the worker may not start programs as this user: it lacks {', '.join(missing)}",
            limit="AmbientCapabilities= of its systemd unit, cap_add of its container, or root "
            "(manual: devices)",
        )
    groups = dict.fromkeys((*os.getgrouplist(entry.pw_name, entry.pw_gid), *further))
    return ChildUser(entry.pw_name, entry.pw_uid, entry.pw_gid, tuple(groups), entry.pw_dir)


def keep_capabilities_here() -> None:
    """Let no program that this process starts inherit its capabilities."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)


def delete_folder(folder: Path, user: ChildUser | None) -> None:
    """Delete a kernel's private folder, with whatever either user made in it."""
    shutil.rmtree(folder, ignore_errors=True)
    if user is not None and folder.exists():
        user.clean_up(folder)
        shutil.rmtree(folder, ignore_errors=True)


def _effective(bit: int) -> bool:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> bit & 1)
    return False

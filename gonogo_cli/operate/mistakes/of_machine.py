"""Mistakes on this machine: files, disks, limits, and the driver of its chips."""

from __future__ import annotations

import os
import resource
import tempfile
from pathlib import Path

from gonogo_cli.operate.mistakes.machine import Machine, NotHere

LEAST_FREE = 2**30
LEAST_INODES = 0.05
SECRET_FILES = ("secret_key", "host.json", "up.json", "gonogo.sqlite")
SETUP_FILES = (".env", "worker.env", "users.acl")
SQLITE = "sqlite:///"
TENSTORRENT = "0x1e52"
"""The vendor of the chips on PCI."""
_GIGANTIC = "sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"


def permissions(machine: Machine) -> str | None:
    """Other users of this machine can read keys."""
    folder = machine.folder or Path.cwd()
    named = [Path(value) for name, value in machine.environ.items() if _names_file(name)]
    key = machine.settings.github_app_key
    if key is not None and not key.get_secret_value().lstrip().startswith("-----"):
        named.append(Path(key.get_secret_value()))
    paths = [machine.var / name for name in SECRET_FILES]
    if (database := _sqlite_file(machine)) is not None:
        paths.append(database)
    # a file in a folder that others can't enter is safe
    paths = [path for path in dict.fromkeys(paths) if not _is_private(path.parent)]
    loose = [
        str(path)
        for path in (*paths, *(folder / name for name in SETUP_FILES), *named)
        if path.is_file() and path.stat().st_mode & 0o077
    ]
    return f"other users can read {', '.join(loose)}" if loose else None


def _is_private(folder: Path) -> bool:
    return folder.exists() and not folder.stat().st_mode & 0o077


def _sqlite_file(machine: Machine) -> Path | None:
    url = machine.settings.database_url or ""
    return Path(url.removeprefix(SQLITE)).absolute() if url.startswith(SQLITE) else None


def _names_file(name: str) -> bool:
    return name.startswith("GONOGO_") and name.endswith("_FILE")


def writable(machine: Machine) -> str | None:
    """State can't be written."""
    folders = [machine.var, Path(machine.settings.spool_dir or machine.var / "spool")]
    bad = [str(folder) for folder in folders if folder.exists() and not os.access(folder, os.W_OK)]
    return f"this user can't write {', '.join(bad)}" if bad else None


def disk(machine: Machine) -> str | None:
    """A file system is full: writes fail, and jobs wait."""
    folders = {machine.var, Path(tempfile.gettempdir())}
    if (database := _sqlite_file(machine)) is not None:
        folders.add(database.parent)
    if machine.settings.spool_dir:
        folders.add(Path(machine.settings.spool_dir).absolute())
    full = []
    for folder in sorted(folders):
        space = machine.space(folder)
        if space.free < LEAST_FREE:
            full.append(f"{folder} has {space.free / 2**30:.1f} GiB left")
        elif space.inodes < LEAST_INODES:
            full.append(f"{folder} has {100 * space.inodes:.0f} % of its inodes left")
    return "; ".join(full) or None


def open_files(machine: Machine) -> str | None:
    """Connections fail with "too many open files"."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = machine.settings.max_connections + 200
    if limit == resource.RLIM_INFINITY or limit >= needed:
        return None
    return f"a process may open {limit} files; GONOGO_MAX_CONNECTIONS needs {needed}"


def driver(machine: Machine) -> str | None:
    """The chips' driver isn't loaded."""
    if not _chips(machine):
        raise NotHere("this machine has no chips")
    if (machine.root / "sys/module/tenstorrent").exists():
        return None
    return "this machine has chips, and the driver tenstorrent isn't loaded"


def device_files(machine: Machine) -> str | None:
    """The worker's user can't open the chips."""
    if not _chips(machine):
        raise NotHere("this machine has no chips")
    folder = machine.root / "dev/tenstorrent"
    shut = [
        str(path) for path in sorted(folder.glob("*")) if not os.access(path, os.R_OK | os.W_OK)
    ]
    return f"this user can't open {', '.join(shut)}" if shut else None


def hugepages(machine: Machine) -> str | None:
    """Kernels fail to start: the driver's buffers need pages of 1 GiB."""
    if not _chips(machine):
        raise NotHere("this machine has no chips")
    pages, chips = int(machine.text(_GIGANTIC) or 0), _chips(machine)
    groups = machine.root / "sys/kernel/iommu_groups"
    if pages >= chips or (groups.exists() and any(groups.iterdir())):
        return None
    return f"{pages} pages of 1 GiB for {chips} chips, and no IOMMU"


def _chips(machine: Machine) -> int:
    vendors = (machine.root / "sys/bus/pci/devices").glob("*/vendor")
    return sum(path.read_text().strip() == TENSTORRENT for path in vendors)

"""The base of the executors of existing tests: a build's suites, folders and reports.

Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

Report = dict[str, Any]
HOST_FOLDER = "gonogo-host-"
DEADLINE_VARIABLE = "GONOGO_PER_SEED_DEADLINE_S"
DEADLINE_S = 600.0
"""The deadline where none is set; the kernel host sets one."""
SHARE = 0.95
"""The share of the worker's deadline that an iteration uses.

It must end before the worker does, or the results of finished tests are lost.
"""
KEPT_RUNS = 2
"""The worker may read the arrays of an iteration while the next one already runs."""
OUT_OF_TIME = "the end of the iteration's time"


class ProgramExecutor:
    """An executor that runs a build's tests; one `report` is one iteration."""

    def __init__(self, kind: str, build: str) -> None:
        """Read the build from the builds file (GONOGO_BUILD). Raises ValueError for another one."""
        table = json.loads(os.environ.get("GONOGO_BUILD", "{}"))
        self.command = [str(word) for word in table.get("command") or ()]
        if table.get("name") != build:
            raise ValueError(f"the builds file of this host has no {kind} build {build!r}")
        self.build, self.options = build, table.get("options") or {}
        self.tables: Mapping[str, Any] = table.get("suites") or {}
        self.suites: dict[str | None, Any] = {}
        self._kind = kind
        self._folders: list[Path] = []

    @cached_property
    def folder(self) -> Path:
        """The executor's own folder; a build that is refused makes none."""
        main = getattr(sys.modules.get("__main__"), "__file__", None)
        parent = os.path.dirname(os.path.abspath(main)) if main else ""
        # the kernel host's own folder is deleted with the host, however that ends
        is_host = os.path.basename(parent).startswith(HOST_FOLDER)
        return worker_folder(f"gonogo-{self._kind}-", parent if is_host else None)

    def close(self) -> None:
        """Delete all written files."""
        if "folder" in vars(self):
            shutil.rmtree(self.folder, ignore_errors=True)

    def suite(self, name: str | None) -> Any:
        """Return a suite. Raises ValueError with those that there are."""
        if name not in self.suites:
            known = ", ".join(sorted(suite for suite in self.suites if suite is not None)) or "none"
            raise ValueError(f"this build has no suite {name!r}; it has: {known}")
        return self.suites[name]

    def iteration_folder(self, iteration: int) -> Path:
        """Return a new folder; those of the last two iterations stay."""
        self._folders.append(worker_folder(f"{iteration}-", self.folder))
        while len(self._folders) > KEPT_RUNS:
            shutil.rmtree(self._folders.pop(0), ignore_errors=True)
        return self._folders[-1]


def worker_folder(prefix: str, parent: str | os.PathLike[str] | None) -> Path:
    """Return a new folder whose files the worker reads, also where it is another user.

    The group of the parent, which both belong to, may look into it.
    """
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    folder.chmod(0o2750)
    return folder


def deadline_s() -> float:
    """Return the seconds that an iteration may take."""
    with contextlib.suppress(ValueError):
        return SHARE * float(os.environ.get(DEADLINE_VARIABLE, "") or DEADLINE_S)
    return SHARE * DEADLINE_S


def environment(iteration: int, seed: int | None, without: tuple[str, ...]) -> dict[str, str]:
    """Return our environment for the tests of an iteration, without some variables."""
    given = {name: value for name, value in os.environ.items() if name not in without}
    given["GONOGO_ITERATION"] = str(iteration)
    given.pop("GONOGO_SEED", None)
    return given if seed is None else {**given, "GONOGO_SEED": str(seed)}


def row(name: str, outcome: str, message: str, **more: Any) -> Report:
    """Return the report of a test."""
    return {
        "name": name,
        "outcome": outcome,
        "duration_ms": None,
        "message": message,
        "failures": [],
        "measurements": {},
        "stage": None,
        "dumps": [],
        **more,
    }


def add_dumps(by_name: dict[str, Report], folder: Path) -> None:
    """Add each complete handover of arrays to its test's report, in order."""
    for name, dump in _dumps(folder):
        if name not in by_name:
            by_name[name] = row(name, "not_run", "arrays were handed over outside of any test")
        by_name[name]["dumps"].append(dump)


def _dumps(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    manifests = folder.glob("[!.]*/manifest.json")
    for manifest in sorted(manifests, key=lambda path: (path.lstat().st_mtime_ns, path)):
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError, RecursionError):
            content = json.loads(manifest.read_text("utf-8"))
            dump = {name: content.get(name) for name in ("kernel", "fields", "name", "arithmetic")}
            for kind in ("tensors", "raw"):
                dump[kind] = {
                    str(name): str(manifest.parent / Path(file).name)
                    for name, file in (content.get(kind) or {}).items()
                }
            yield str(content.get("test") or "(no test)"), dump


def check_known(place: str, table: Mapping[str, Any], names: tuple[str, ...]) -> None:
    """Raise ValueError for a field of the builds file that nobody knows.

    A suite that isn't what its author meant must not run.
    """
    for name in table:
        if name not in names:
            raise ValueError(f"{place}.{name}: unknown field; allowed: {', '.join(names)}")


def texts(place: str, value: Any) -> tuple[str, ...]:
    """Return a list of texts. Raises ValueError."""
    if not isinstance(value, list) or not all(isinstance(text, str) and text for text in value):
        raise ValueError(f"{place} must be a list of texts; got {value!r}")
    return tuple(value)


def seconds(place: str, table: Mapping[str, Any]) -> float | None:
    """Return the field timeout_s; None without one. Raises ValueError."""
    value = table.get("timeout_s")
    if value is not None and (
        isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0
    ):
        raise ValueError(f"{place}.timeout_s must be a number of seconds above 0; got {value!r}")
    return value

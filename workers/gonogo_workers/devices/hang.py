"""Examines a hang: tt-triage while the process hangs, then the same seed under the watcher."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from gonogo.judging.inputs import generate, quantise
from gonogo.reports.outcomes import Outcome
from gonogo.spec.executors import EXECUTORS
from gonogo.spec.selections import Selection
from gonogo_workers.devices import programs, watch
from gonogo_workers.executors.base import ExecutorFailure, KernelHang
from gonogo_workers.executors.builds_file import ResolvedBuild
from gonogo_workers.executors.child_user import child_user
from gonogo_workers.executors.kernel_host import KernelHost
from gonogo_workers.messages.chunk import Chunk, Work
from gonogo_workers.messages.rows import artifact
from gonogo_workers.reports.exchange import read_reports, regular_file, request

log = logging.getLogger(__name__)

TRIAGE_DEADLINE_S: Final = 60.0
KEPT_CHARS: Final = 256 * 1024
"""The characters kept from the end of a watcher log or of prints.

The last dump of all cores of a Wormhole takes about 20 KiB.
"""
MAX_FILES: Final = 1000
WATCHER_LOGS: Final = "watcher*.log"
OPTION: Final = "watcher_environment"
"""The build option with the variables of the run under the watcher.

`{folder}` is replaced by a folder whose files are read afterwards.
"""
METAL: Final[Mapping[str, str]] = {
    "TT_METAL_WATCHER": "2",
    "TT_METAL_WATCHER_APPEND": "0",
    "TT_METAL_LOGS_PATH": "{folder}",
    "TT_METAL_DPRINT_CORES": "all",
    "TT_METAL_DPRINT_FILE": "{folder}/prints.txt",
}
"""The variables of tt-metal (docs: tools/watcher, tools/kernel_print).

A dump every 2 s; its log and the kernels' prints go to a private folder.
"""


def triage(
    command: str | None, resolved: ResolvedBuild, places: Mapping[str, object]
) -> dict[str, Any] | None:
    """Return the output of tt-triage, run while the process hangs; None where it isn't installed.

    It reads what the process publishes.
    """
    environment = dict(resolved.environment)
    home = environment.get("TT_METAL_HOME") or os.environ.get("TT_METAL_HOME")
    if command is None:
        script = Path(home or "/nowhere") / "tools" / "tt-triage.py"
        if not script.is_file():
            return None
        command = f"{shlex.quote(resolved.executor.interpreter)} {shlex.quote(str(script))}"
    try:
        words = programs.words_of(command, places)
    except ValueError as problem:
        log.warning("GONOGO_TT_TRIAGE: %s", problem)
        return None
    if not words or shutil.which(words[0]) is None:
        return None
    done = programs.run(words, TRIAGE_DEADLINE_S, environment=environment)
    return {"text": done.output, "trouble": done.trouble}


def watcher_environment(resolved: ResolvedBuild) -> Mapping[str, str] | None:
    """Return the variables of a run under the watcher; None for an executor without one."""
    variables = resolved.options.get(OPTION)
    if isinstance(variables, Mapping):
        return {str(name): str(value) for name, value in variables.items()}
    row = EXECUTORS.get(resolved.executor.name)
    return METAL if row is not None and row.has_watcher else None


def again(
    chunk: Chunk,
    work: Work,
    resolved: ResolvedBuild,
    lock_fd: int,
    *,
    started: Callable[[KernelHost], None],
) -> tuple[str, tuple[dict[str, Any], ...]]:
    """Run the hung seed again in a separate child with the watcher enabled.

    It gets the seed's deadline. `started` receives the child before it works, so that another
    thread may stop it. Returns words for the seed's message, and artifacts. Never raises.
    """
    variables = watcher_environment(resolved) or {}
    with tempfile.TemporaryDirectory(prefix="gonogo-watch-", ignore_cleanup_errors=True) as folder:
        if (user := child_user()) is not None:
            user.share(Path(folder))
        filled = {name: value.replace("{folder}", folder) for name, value in variables.items()}
        watched = replace(resolved, environment={**resolved.environment, **filled})
        outcome, tail = _run(chunk, work, watched, lock_fd, started)
        logs, prints = _files(Path(folder))
        if user is not None:
            user.clean_up(Path(folder))
    stuck = watch.read(logs)
    content = {"outcome": outcome, **asdict(stuck), "log": logs, "prints": prints, "text": tail}
    words = f"; under the watcher: {stuck.words}" if logs else "; under the watcher: it left no log"
    if outcome != "hang":
        words += f" (this time the seed did not hang: {outcome})"
    return words, (artifact("watcher", work, content),)


def _run(
    chunk: Chunk,
    work: Work,
    resolved: ResolvedBuild,
    lock_fd: int,
    started: Callable[[KernelHost], None],
) -> tuple[str, str]:
    """Return how the seed ended this time, and the end of its log.

    It ended with "hang", "answered", or a description of the error.
    """
    test, seed, limit_s = chunk.test, work[0], chunk.first_seed_deadline_s
    host: KernelHost | None = None
    hung = False
    try:
        host = KernelHost(resolved.executor, resolved.environment)
        started(host)
        host.open(chunk.build, lock_fd=lock_fd)
        if isinstance(test, Selection):
            file = host.folder / "watched.json"
            host.submit(request(test, seed, file, limit_s))
            host.receive(time.monotonic() + limit_s)
            hung = any(report.outcome is Outcome.hang for report in read_reports(file))
        else:
            given = quantise(test, generate(test, seed))
            host.run(test, given, seed, resolved.produced, limit_s)
        return "hang" if hung else "answered", host.log.tail()
    except KernelHang as hang:
        return "hang", hang.log_tail
    except ExecutorFailure as problem:
        return f"{problem.verdict}: {problem}", problem.log_tail
    except Exception as problem:  # evidence must not cost a result
        log.exception("the run under the watcher failed")
        return f"{type(problem).__name__}: {problem}", ""
    finally:
        if host is not None:
            host.kill()


def _files(folder: Path) -> tuple[str, str]:
    """Return the text that the watcher and the kernels wrote: the logs, and all other text.

    No links (they might lead anywhere) and no pipes (they might never end).
    """
    logs: list[str] = []
    prints: list[str] = []
    for path in sorted(folder.rglob("*"))[:MAX_FILES]:
        if path.suffix not in (".log", ".txt"):
            continue
        with contextlib.suppress(OSError), open(path, "rb", opener=regular_file) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - KEPT_CHARS))
            text = file.read(KEPT_CHARS).decode("utf-8", "replace").replace("\x00", "")
            (logs if path.match(WATCHER_LOGS) else prints).append(text)
    return "\n".join(logs)[-KEPT_CHARS:], "\n".join(prints)[-KEPT_CHARS:]

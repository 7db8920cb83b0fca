"""Reads tt-metal's watcher log: which kernel of a core is stuck, and at which waypoint.

The kernel is the reader, compute or writer kernel. The format is documented in tt-metal's docs
(tt-metalium, tools, watcher). There is one line per core and dump, in the old and the new form:

    Core (x=1,y=1):    CWFW,CRBW,R,R,R rmsg:D0G|BNT smsg:GGGG k_ids:4|3|5
    Device 0 worker core(x= 0,y= 0) virtual(x=18,y=18):   GW,   W,   W,   W,   W
        rmsg:D1D|bnt h_id: 0 smsg:DDDD k_ids: 11| 10|  0      (one line in the log)
    k_id[ 11]: path/of/the/kernel.cpp

Waypoints and run states are in the order BRISC, NCRISC, TRISC0, TRISC1, TRISC2. In `rmsg`, the
third letter is the core's run state (G go, D done); a capital B, N or T says that there is a kernel
on BRISC, NCRISC or the TRISCs. `smsg` is the run state of all but BRISC.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

PROCESSORS = ("BRISC", "NCRISC", "TRISC0", "TRISC1", "TRISC2")
READER, COMPUTE, WRITER = "reader", "compute", "writer"
USUAL_ROLE: Mapping[str, str] = dict.fromkeys(PROCESSORS, COMPUTE) | {
    "BRISC": WRITER,
    "NCRISC": READER,
}
"""tt-metal's default placement; a role in a kernel's file name takes precedence.

ReaderDataMovementConfig: RISCV_1, WriterDataMovementConfig: RISCV_0.
"""
FRONT_WAIT = frozenset({"CWFW", "UWFW", "WFW"})
"""Waits for tiles in a circular buffer, which the kernel before it doesn't deliver.

The reader comes before compute, compute before the writer.
"""
BACK_WAIT = frozenset({"CRBW", "RBW", "PRBW"})
"""Waits for room in a circular buffer: the kernel behind it doesn't consume the tiles."""
BEFORE = {COMPUTE: READER, WRITER: COMPUTE}
BEHIND = {READER: COMPUTE, COMPUTE: WRITER}
MAX_LINE = 2000
"""Characters of a line that are read: a kernel may write to the log, too, and a long line takes the
square of its length."""

_CORE = re.compile(
    r"^(?:Device\s+(?P<device>\d+)\s+)?(?:(?P<kind>\w+)\s+)?[Cc]ore\s*\(x=\s*(?P<x>\d+),\s*y=\s*(?P<y>\d+)\)[^:]*:"
    r"\s*(?P<points>[^\s,]*(?:,\s*[^\s,]*)*)\s+rmsg:(?P<rmsg>\S+).*?(?:smsg:(?P<smsg>\S+)\s+)?k_ids:(?P<kids>[\s\d|]+)"
)
_NAME = re.compile(r"^k_id\[\s*(\d+)\]:\s*(.+?)\s*$")
_TROUBLE = re.compile(
    r"tripped assert|tried to (?:uni|multi)cast|overflow|corruption", re.IGNORECASE
)


@dataclass(frozen=True)
class Core:
    """One core in one dump: for each processor that has a kernel, its state.

    The state is its waypoint, whether it still runs, and its kernel's number.
    """

    x: int
    y: int
    waypoints: Mapping[str, str]
    running: Mapping[str, bool]
    kernels: Mapping[str, int]


@dataclass(frozen=True)
class Stuck:
    """A watcher log's finding about a hang."""

    role: str | None
    """reader, compute or writer; two joined by " and " if they wait for each other; None: idle."""
    words: str
    cores: int
    core: tuple[int, int] | None = None
    processor: str | None = None
    waypoint: str | None = None
    kernel: str | None = None
    waypoints: tuple[dict[str, Any], ...] = field(default_factory=tuple)
    """Every core with a running kernel: {"core": [x, y], processor: waypoint, ...}."""
    trouble: tuple[str, ...] = field(default_factory=tuple)
    """Lines in which the watcher itself found a fault (an assert, an illegal NoC transaction)."""


def read(text: str) -> Stuck:
    """Return the stuck kernels of the last dump of a watcher log.

    `words` says so when the log is empty or shows no running kernel.
    """
    lines = [line[:MAX_LINE] for line in text.splitlines()]
    cores, names = _last_dump(lines)
    trouble = tuple(line.strip()[:500] for line in lines if _TROUBLE.search(line))[-8:]
    running = [core for core in cores if any(core.running.values())]
    waypoints = tuple({"core": [core.x, core.y], **core.waypoints} for core in running)
    if not running:
        words = "the watcher saw no kernel running" if cores else "the watcher's log shows no core"
        return Stuck(None, words, 0, waypoints=waypoints, trouble=trouble)
    blamed = [(core, *_blame(core, names)) for core in running]
    role = Counter(entry[1] for entry in blamed).most_common(1)[0][0]
    core, _, processor = next(entry for entry in blamed if entry[1] == role)
    count = sum(entry[1] == role for entry in blamed)
    kernel = names.get(core.kernels.get(processor, -1))
    waypoint = core.waypoints.get(processor) or "no waypoint"
    if " and " in role:
        words = f"{role} wait for each other"
    elif not core.running.get(processor, False):
        words = f"stuck waiting for the {role}, which has ended ({processor}"
        words += f" of {kernel})" if kernel else ")"
    else:
        state = "runs" if waypoint == "R" else f"is at waypoint {waypoint}"
        words = f"stuck in the {role}: {processor} {state}"
        words += f" of {kernel}" if kernel else ""
    words += f" on {count} of {len(running)} running core{'s' if len(running) > 1 else ''}"
    words += f", first on ({core.x},{core.y})"
    place = (core.x, core.y), processor, core.waypoints.get(processor), kernel
    return Stuck(role, words, count, *place, waypoints, trouble)


def _last_dump(lines: Iterable[str]) -> tuple[list[Core], dict[int, str]]:
    """Return the cores' last lines, and the kernels' names.

    A later line of the same core replaces an earlier one.
    """
    cores: dict[tuple[int, int, int], Core] = {}
    names: dict[int, str] = {}
    for line in lines:
        name = _NAME.match(line)
        if name is not None:
            names[int(name[1])] = name[2]
            continue
        match = _CORE.match(line.strip())
        if match is not None and match["kind"] in (None, "worker"):
            core = _core(match)
            cores[(int(match["device"] or 0), core.x, core.y)] = core
    return list(cores.values()), names


def _core(match: re.Match[str]) -> Core:
    given = (point.strip() for point in match["points"].split(","))
    points = dict(zip(PROCESSORS, given, strict=False))
    state, _, flags = match["rmsg"].partition("|")
    ended = (letter == "D" for letter in match["smsg"] or "")
    done = dict(zip(PROCESSORS[1:], ended, strict=False)) | {"BRISC": state[-1:] == "D"}
    numbers = [int(number) for number in match["kids"].replace(" ", "").split("|") if number]
    if len(numbers) != len(PROCESSORS):  # the old form has one number for all TRISCs
        numbers += numbers[2:3] * 2
    by_class = dict(zip(PROCESSORS, numbers, strict=False))
    present = {processor: processor[0] in flags for processor in PROCESSORS}
    running = {name: present[name] and not done.get(name, False) for name in PROCESSORS}
    return Core(
        int(match["x"]),
        int(match["y"]),
        {name: point for name, point in points.items() if present[name]},
        {name: runs for name, runs in running.items() if present[name]},
        {name: number for name, number in by_class.items() if present[name]},
    )


def _role(processor: str, core: Core, names: Mapping[int, str]) -> str:
    """Return the role of the kernel on a processor: by its file's name, else by its place."""
    file = names.get(core.kernels.get(processor, -1), "").rsplit("/", 1)[-1].lower()
    return next((role for role in (READER, WRITER, COMPUTE) if role in file), USUAL_ROLE[processor])


def _blame(core: Core, names: Mapping[int, str]) -> tuple[str, str]:
    """Return the role that blocks the others, and the processor that shows it.

    Each wait at a circular buffer points to the kernel at its other end. The blocking kernel is the
    one that waits for no other, or that has ended while others wait for it. A ring of waits is a
    deadlock of its members.
    """
    waits: dict[str, tuple[str, str]] = {}  # role -> (role it waits for, its processor)
    busy: dict[str, str] = {}  # role -> a processor that runs and waits for no other kernel
    for processor, runs in core.running.items():
        if not runs:
            continue
        role, point = _role(processor, core, names), core.waypoints.get(processor, "")
        waits_at = BEFORE if point in FRONT_WAIT else BEHIND if point in BACK_WAIT else {}
        other = waits_at.get(role)
        if other is not None:
            waits[role] = (other, processor)
        elif processor not in ("TRISC1",) or not any(
            name.startswith("TRISC") for name in busy.values()
        ):
            busy.setdefault(role, processor)
    # A compute kernel runs on three processors: if one of them waits for a buffer, the kernel does
    free = [role for role in busy if role not in waits]
    if free:
        # a role that others wait for takes precedence over one that merely runs
        awaited = [role for role in free if any(other == role for other, _ in waits.values())]
        role = (awaited or free)[0]
        return role, busy[role]
    role = next(iter(waits))
    visited = [role]
    while waits[role][0] in waits and waits[role][0] not in visited:
        role = waits[role][0]
        visited.append(role)
    other, processor = waits[role]
    if other in visited:
        ring = sorted(visited[visited.index(other) :])
        return (" and ".join(ring), waits[ring[0]][1]) if len(ring) > 1 else (role, processor)
    return other, next(
        (name for name in core.waypoints if _role(name, core, names) == other), processor
    )

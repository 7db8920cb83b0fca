"""The table of faults: what each needs for itself, how often it comes, and where it applies."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import redis

from benchmarks.chaos import acts
from benchmarks.chaos.acts import Chaos

Act = Callable[[Chaos], None]


@dataclass(frozen=True)
class Fault:
    """A kind of fault. `parts` are those that no other fault may touch meanwhile."""

    act: Act
    parts: tuple[str, ...]
    weight: float = 1.0
    databases: tuple[str, ...] = ("postgres", "sqlite")

    @property
    def name(self) -> str:
        """The name of its function, in words."""
        return self.act.__name__.replace("_", " ")


POSTGRES, SQLITE = ("postgres",), ("sqlite",)
FAULTS = {
    fault.name: fault
    for fault in (
        Fault(acts.kill_api, ("api",)),
        Fault(acts.kill_background, ("background",), 2),
        Fault(acts.kill_all_backgrounds, ("background",)),
        Fault(acts.kill_worker, ("workers",), 2),
        Fault(acts.kill_kernel, ("workers",)),
        Fault(acts.kill_receiver, ("receiver",)),
        Fault(acts.kill_database_process, ("database",), 1, POSTGRES),
        Fault(acts.pause_worker, ("workers",), 2),
        Fault(acts.pause_background, ("background",)),
        Fault(acts.pause_api, ("api",)),
        Fault(acts.stop_api, ("api",), 0.5),
        Fault(acts.flush_broker, ("broker",)),
        Fault(acts.restart_broker_with_data, ("broker",)),
        Fault(acts.restart_broker_without_data, ("broker",)),
        Fault(acts.restore_old_broker, ("broker",)),
        Fault(acts.fill_broker, ("broker",)),
        Fault(acts.stop_postgres, ("database",), 0.7, POSTGRES),
        Fault(acts.lock_database, ("database",), 0.7, SQLITE),
        Fault(acts.fill_database_disk, ("background", "api", "database"), 0.7),
        Fault(acts.fill_worker_disk, ("api", "workers"), 0.7),
        Fault(acts.skew_worker, ("workers",)),
        Fault(acts.skew_background, ("background",), 0.7),
        Fault(acts.duplicate_wakes, ("broker",), 2),
        Fault(acts.old_wakes, ("broker",)),
        Fault(acts.reorder_wakes, ("broker",), 1),
        Fault(acts.shuffle_posts, ("api", "broker"), 2),
        Fault(acts.hostile_host, ("broker",), 2),
        Fault(acts.restart_api, ("api",)),
        Fault(acts.restart_workers, ("workers",)),
        Fault(acts.upgrade, ("api", "background", "workers", "database"), 0.7),
    )
}


def run(chaos: Chaos, fault: Fault) -> str | None:
    """Do a fault when its parts are free; return what went wrong with the fault itself."""
    with contextlib.ExitStack() as stack:
        for part in sorted(fault.parts):
            stack.enter_context(chaos.site.locks[part])
        stack.enter_context(chaos.site.holding())
        try:
            fault.act(chaos)
        except redis.RedisError as problem:  # the broker didn't take it: no such fault happened
            return f"{type(problem).__name__}: {problem}"
    return None

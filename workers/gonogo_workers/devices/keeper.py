"""Keeps one device of a worker: whether it may take work, its canary, what a failure leads to, and
its later re-tests.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from gonogo.errors import InfrastructureError
from gonogo_settings import Settings
from gonogo_workers.devices import health, locks, recovery
from gonogo_workers.devices.discovery import Device
from gonogo_workers.executors.builds_file import BuildsFile, Meaning, meaning
from gonogo_workers.executors.kernel_host import KernelHost
from gonogo_workers.executors.registry import ExecutorSpec

log = logging.getLogger(__name__)

MOST_RETEST_S = 3600.0


class Order(StrEnum):
    """What the service wants of a device (a key in the broker, as for a cancel)."""

    work = "work"
    """Take chunks."""
    drain = "drain"
    """End the current seed, hand the rest back, take nothing until told otherwise."""
    maintenance = "maintenance"
    """The same, and run no canary either: a person is at it."""


@dataclass(frozen=True)
class Canary:
    """The build that a device must get right, and what its name means on this host."""

    meaning: Meaning
    build: str


def canary_of(spec: ExecutorSpec, builds: BuildsFile, device: Device) -> Canary | None:
    """The canary of an executor on this device: the build that `[executors.NAME] canary` names,
    else ours; None: there is none.
    """
    build = builds.executors.get(spec.name, {}).get("canary", health.CANARY_BUILDS.get(spec.name))
    if not build:
        return None
    meant = meaning(spec, build, builds)
    return Canary(replace(meant, environment={**meant.environment, **device.environment}), build)


class Keeper:
    """The health of one device, as this worker knows it. `check` belongs to the thread that holds
    the device's lock.

    `report` sends a change to the service; `changed` is called whenever `takes_work` may have
    changed.
    """

    def __init__(
        self,
        device: Device,
        lock_folder: Path,
        canary: Canary | None,
        settings: Settings,
        *,
        report: Callable[[Mapping[str, Any]], None],
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """Raises FieldError for a command of the settings that can't be read."""
        self.device, self.canary = device, canary
        self._folder, self._settings, self._report, self._changed = (
            lock_folder,
            settings,
            report,
            changed,
        )
        self._ladder = recovery.rungs(settings, device)
        self._memory = locks.lock_path(lock_folder, device.name).with_suffix(".health")
        self.order = Order.work
        self.health, self.reason = self._remembered()
        self._asked: int | None = None
        self._retest_at = 0.0
        self._sang_at = time.monotonic()
        self._chunks = 0
        self._digests: dict[str, str] = {}
        self._doubt: str | None = None
        self._wanted = False
        """Whether the service waits for the outcome of a test, even if it changes nothing."""
        self._stop = threading.Event()
        self._wake = threading.Condition()
        self._host: KernelHost | None = None
        self._retester: threading.Thread | None = None

    @property
    def takes_work(self) -> bool:
        """Whether chunks may be run on the device now."""
        return self.order is Order.work and self.health is not health.Health.bad

    @property
    def facts(self) -> dict[str, Any]:
        """What a heartbeat says of the device."""
        return {
            **self.device.facts,
            "health": self.health.value,
            "reason": self.reason,
            "order": self.order.value,
        }

    def begin(self) -> None:
        """The worker runs: a device that an earlier worker of it left as bad is tested again
        now.
        """
        if self.health is health.Health.bad:
            self._retest(0.0)

    def stop(self) -> None:
        """End the re-tests; whatever runs for one is killed."""
        self._stop.set()
        host = self._host
        if host is not None:
            host.stop()

    def told(self, order: Order, asked: int) -> None:
        """The service's word. A higher `asked` than before wants the device tested again now."""
        before, self.order = self.order, order
        if order is not before:
            log.warning("device %s: the service says %s", self.device.identity, order.value)
            self._changed()
        if self._asked is not None and asked > self._asked and order is not Order.maintenance:
            self._wanted = True
            self._retest(0.0)
        self._asked = asked

    def due(self) -> str | None:
        """Why the next chunk has to wait for a canary, if it has to."""
        every_s, every_jobs = self._settings.canary_every_s, self._settings.canary_every_jobs
        if self._doubt is not None:
            return self._doubt
        if every_s and time.monotonic() - self._sang_at >= every_s:
            return f"{every_s:g} s had passed"
        return (
            f"{self._chunks} chunks had run" if every_jobs and self._chunks >= every_jobs else None
        )

    def doubt(self, why: str) -> None:
        """Something happened after which the next chunk waits for a canary."""
        self._doubt = why

    def ran(self) -> None:
        """A chunk was run."""
        self._chunks += 1

    def check(
        self, held: locks.HeldDevice, why: str, tell: Callable[[str], None] = lambda _: None
    ) -> None:
        """Run the canary; where it fails, climb the ladder. Raises DeviceSick when the device is
        bad then.

        Without a canary nothing can be said: the device stays as it is.
        """
        if self.canary is None:
            self._doubt = None
            return
        done = recovery.climb(
            self._ladder, lambda: self._sing(held), tell=tell, stopping=self._stop.is_set
        )
        if done.good:
            first = done.steps[0].rung == done.steps[-1].rung
            reason = f"{done.reason}; it was tested because {why}"
            if self.health is not health.Health.good or not first or self._wanted:
                self._become(health.Health.good, reason, done)
            else:  # nothing has changed, but its bits are compared with those of other devices
                self._tell(health.Health.good, reason, done, routine=True)
            return
        if self._stop.is_set():
            raise InfrastructureError("stopped while the device was tested")
        self._become(health.Health.bad, f"{done.reason}; it was tested because {why}", done)
        self._retest(self._settings.retest_s)
        raise health.DeviceSick(f"device {self.device.name} is bad: {done.reason}")

    def _sing(self, held: locks.HeldDevice) -> str | None:
        assert self.canary is not None

        def started(host: KernelHost) -> None:
            self._host = host
            held.record(host.pid, host.host_run)

        try:
            digest = health.canary(
                self.canary.meaning,
                self.canary.build,
                lock_fd=held.fd,
                deadline_s=self._settings.canary_deadline_s,
                started=started,
            )
        except InfrastructureError as problem:
            return str(problem)
        finally:
            self._host = None
        self._sang_at, self._chunks, self._doubt = time.monotonic(), 0, None
        self._digests = digest
        return None

    def _become(self, now: health.Health, reason: str, done: recovery.Recovery) -> None:
        before, self.health, self.reason = self.health, now, reason
        self._wanted = False
        log.warning(
            "device %s: %s -> %s: %s", self.device.identity, before.value, now.value, reason
        )
        self._remember()
        self._tell(now, reason, done)
        if before is not now:
            self._changed()

    def _tell(
        self, now: health.Health, reason: str, done: recovery.Recovery, *, routine: bool = False
    ) -> None:
        evidence = {
            "steps": done.to_json(),
            "executor": self.device.executor,
            "canary": self.canary.build if self.canary else None,
            "digests": self._digests,
        }
        told = {
            "device": self.device.identity,
            "health": now.value,
            "reason": reason,
            "evidence": evidence,
            "at": time.time(),
        }
        self._report({**told, "routine": True} if routine else told)

    def _retest(self, after_s: float) -> None:
        """Test again later, with backoff; one thread at a time, and a new wish shortens its
        wait.
        """
        if self.canary is None:
            return
        with self._wake:
            self._retest_at = time.monotonic() + after_s
            self._wake.notify_all()
            if self._retester is None or not self._retester.is_alive():
                self._retester = threading.Thread(
                    target=self._retests, name=f"retest-{self.device.name}", daemon=True
                )
                self._retester.start()

    def _retests(self) -> None:
        pause = self._settings.retest_s
        while not self._stop.is_set():
            with self._wake:
                while (left := self._retest_at - time.monotonic()) > 0 and not self._stop.is_set():
                    self._wake.wait(min(left, 1.0))
            if self._stop.is_set() or self._passes():
                return
            pause = min(2 * pause, MOST_RETEST_S)
            with self._wake:
                self._retest_at = time.monotonic() + pause

    def _passes(self) -> bool:
        """One re-test; True when no further one is needed."""
        if self.order is Order.maintenance:
            return False
        try:
            held = locks.acquire(
                self._folder, self.device.name, lambda: not self._stop.is_set(), self._stop
            )
        except InfrastructureError as problem:
            log.warning("device %s can't be tested: %s", self.device.identity, problem)
            return False
        try:
            self.check(
                held,
                "it was bad before"
                if self.health is health.Health.bad
                else "the service asked for it",
            )
        except InfrastructureError:
            return False
        finally:
            held.close()
        return True

    def _remembered(self) -> tuple[health.Health, str | None]:
        """What an earlier worker knew of this device: a restart makes no bad device good. (Without
        a canary nobody could say so.)
        """
        if self.canary is None:
            return health.Health.good, None
        with suppress(OSError, ValueError, KeyError, TypeError):
            told = json.loads(self._memory.read_text())
            return health.Health(told["health"]), str(told["reason"])
        return health.Health.good, None

    def _remember(self) -> None:
        try:
            if self.health is health.Health.good:
                self._memory.unlink(missing_ok=True)
                return
            part = self._memory.with_suffix(f".{os.getpid()}")
            part.write_text(json.dumps({"health": self.health.value, "reason": self.reason}))
            part.replace(self._memory)
        except OSError as problem:
            log.warning("can't write %s: %s", self._memory, problem.strerror)

"""Monitors one device of a worker: whether it takes work, its canary, recovery and re-tests."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from gonogo.errors import InfrastructureError
from gonogo.settings import Settings
from gonogo.spec.executors import ON_WORMHOLE
from gonogo_workers.devices import health, locks, recovery
from gonogo_workers.devices.discovery import Device
from gonogo_workers.executors.builds_file import BuildsFile, ResolvedBuild, resolve_build
from gonogo_workers.executors.kernel_host import KernelHost
from gonogo_workers.executors.registry import ExecutorSpec

log = logging.getLogger(__name__)

MAX_RETEST_S = 3600.0


class Order(StrEnum):
    """The service's order for a device."""

    work = "work"
    """Take chunks."""
    drain = "drain"
    """End the current seed, hand the rest back, take nothing until the next order."""
    maintenance = "maintenance"
    """The same, and run no canary either: a person is working on the device."""


@dataclass(frozen=True)
class Canary:
    """The build that a device must get right, as this host resolves it."""

    resolved: ResolvedBuild
    build: str


def canary_of(spec: ExecutorSpec, builds: BuildsFile, device: Device) -> Canary | None:
    """Return the canary of an executor on this device; None where it has none.

    It is the build that `[executors.NAME] canary` names, else the executor's default.
    """
    build = builds.executors.get(spec.name, {}).get("canary", health.CANARY_BUILDS.get(spec.name))
    if not build:
        return None
    resolved = resolve_build(spec, build, builds)
    return Canary(
        replace(resolved, environment={**resolved.environment, **device.environment}), build
    )


def canaries(folder: Path) -> list[tuple[str, str, str]]:
    """Return the last canary's findings for each device of this host that has had one.

    They are its name, how its program replays known-right kernels, and why its results count
    against no kernel ("").
    """
    canaries_of = []
    for ledger in sorted(folder.glob("*.canary")):
        with suppress(OSError, ValueError, KeyError, TypeError):
            stored = json.loads(ledger.read_text())
            if stored["replay"]:
                canaries_of.append((ledger.stem, str(stored["replay"]), str(stored["unreplayed"])))
    return canaries_of


class DeviceHealthMonitor:
    """The health of one device, as this worker knows it.

    `check` belongs to the thread that holds the device's lock. `report` sends a change to the
    service; `changed` is called whenever `takes_work` may have changed.
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
        """Raise FieldError for a recovery command of the settings that can't be read."""
        self.device, self.canary = device, canary
        self._folder, self._settings = lock_folder, settings
        self._report, self._changed = report, changed
        self._recovery_steps = recovery.planned_steps(settings, device)
        self._memory = locks.lock_path(lock_folder, device.name).with_suffix(".health")
        self._ledger = self._memory.with_suffix(".canary")
        self.order = Order.work
        self.health, self.reason = self._remembered()
        self._test_requests: int | None = None
        self._last_canary_at = self._retest_at = time.monotonic()
        self._chunks = 0
        self._latest = health.CanaryRun({}, None)
        self.doubted: str | None = None
        """Why the next chunk has to wait for a canary; None if it needn't."""
        self.unreplayed = self._known_canary()
        """Why its results count against no kernel: its program replays no right one; else ""."""
        self._test_requested = False
        """True while the service waits for the result of a test, even if it changes nothing."""
        self._stop = threading.Event()
        self._wake = threading.Condition()
        self._host: KernelHost | None = None
        self._retester: threading.Thread | None = None

    @property
    def takes_work(self) -> bool:
        """Return whether chunks may run on the device now."""
        return self.order is Order.work and self.health is not health.Health.bad

    @property
    def facts(self) -> dict[str, Any]:
        """The description of the device in a heartbeat."""
        return {
            **self.device.facts,
            "health": self.health.value,
            "reason": self.reason,
            "order": self.order.value,
        }

    def begin(self) -> None:
        """Test the device again if an earlier worker left it as bad."""
        if self.health is health.Health.bad:
            self._retest(0.0)

    def stop(self) -> None:
        """End the re-tests and kill the one that runs."""
        self._stop.set()
        with self._wake:
            self._wake.notify_all()
        host = self._host
        if host is not None:
            host.stop()

    def receive_order(self, order: Order, test_requests: int) -> None:
        """Follow the service's order; test the device when `test_requests` has grown."""
        before, self.order = self.order, order
        if order is not before:
            log.warning("device %s: the service orders %s", self.device.identity, order.value)
            self._changed()
        known = self._test_requests
        if known is not None and test_requests > known and order is not Order.maintenance:
            self._test_requested = True
            self._retest(0.0)
        self._test_requests = test_requests

    def due(self) -> str | None:
        """Return why the next chunk has to wait for a canary; None if it needn't."""
        every_s, every_jobs = self._settings.canary_every_s, self._settings.canary_every_jobs
        if self.doubted is not None:
            return self.doubted
        if every_s and time.monotonic() - self._last_canary_at >= every_s:
            return f"{every_s:g} s had passed"
        return (
            f"{self._chunks} chunks had run" if every_jobs and self._chunks >= every_jobs else None
        )

    def ran(self) -> None:
        """Count a chunk that ran."""
        self._chunks += 1

    def check(
        self, locked: locks.HeldDevice, why: str, tell: Callable[[str], None] = lambda _: None
    ) -> None:
        """Run the canary; where it fails, try the recovery steps.

        Raises DeviceSick when the device is bad after that. Without a canary nothing can be said:
        the device stays as it is.
        """
        if self.canary is None:
            self.doubted = None
            return
        done = recovery.recover(
            self._recovery_steps,
            lambda: self._run_canary(locked),
            tell=tell,
            stopping=self._stop.is_set,
        )
        if not done.good and self._stop.is_set():
            raise InfrastructureError("stopped while the device was tested")
        reason = f"{done.reason}; it was tested because {why}"
        if not done.good:
            self._become(health.Health.bad, reason, done)
            self._retest(self._settings.retest_s)
            raise health.DeviceSick(f"device {self.device.name} is bad: {done.reason}")
        is_first = done.steps[0].rung == done.steps[-1].rung
        if self.health is not health.Health.good or not is_first or self._test_requested:
            self._become(health.Health.good, reason, done)
        else:  # nothing has changed, but its bits are compared with those of other devices
            self._send_report(health.Health.good, reason, done, routine=True)

    def _run_canary(self, locked: locks.HeldDevice) -> str | None:
        assert self.canary is not None

        def started(host: KernelHost) -> None:
            self._host = host
            locked.record(host.pid, host.host_run)

        try:
            self._latest = health.canary(
                self.canary.resolved,
                self.canary.build,
                on_wormhole=self._is_on_wormhole,
                lock_fd=locked.fd,
                started=started,
            )
        except InfrastructureError as problem:
            return str(problem)
        finally:
            self._host = None
        self._last_canary_at, self._chunks, self.doubted = time.monotonic(), 0, None
        self._note_canary()
        return None

    @property
    def _is_on_wormhole(self) -> bool:
        return self.device.chip is not None or self.device.executor in ON_WORMHOLE

    @property
    def _subject(self) -> dict[str, Any]:
        """The parts of a device whose change needs a new canary."""
        build = self.canary.build if self.canary else None
        return {"build": build, "firmware": self.device.facts["firmware"]}

    def _known_canary(self) -> str:
        """Return the last canary's reason against the card; doubt a chip that has had none."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            stored = json.loads(self._ledger.read_text())
            if stored["subject"] == self._subject:
                return str(stored["unreplayed"])
        if self.device.chip is not None and self.canary is not None:
            self.doubted = "the device, its firmware or its canary is new here"
        return ""

    def _note_canary(self) -> None:
        """Keep the last canary's findings about the card, for other workers and the doctor."""
        replay = self._latest.replay
        self.unreplayed = ""
        if replay is not None and not replay.is_right:
            self.unreplayed = f"the card isn't known well enough: {replay.words}"
        content = {"subject": self._subject, "unreplayed": self.unreplayed}
        _store(self._ledger, {**content, "replay": replay.words if replay else ""})

    def _become(self, now: health.Health, reason: str, done: recovery.Recovery) -> None:
        before, self.health, self.reason = self.health, now, reason
        self._test_requested = False
        log.warning(
            "device %s: %s -> %s: %s", self.device.identity, before.value, now.value, reason
        )
        is_good = now is health.Health.good
        _store(self._memory, None if is_good else {"health": now.value, "reason": reason})
        self._send_report(now, reason, done)
        if before is not now:
            self._changed()

    def _send_report(
        self, now: health.Health, reason: str, done: recovery.Recovery, **more: bool
    ) -> None:
        evidence = {
            "steps": [asdict(step) for step in done.steps],
            "executor": self.device.executor,
            "canary": self.canary.build if self.canary else None,
            "digests": dict(self._latest.digests),
            "replay": self._latest.replay.words if self._latest.replay else "",
        }
        state = {"health": now.value, "reason": reason, "evidence": evidence}
        self._report({"device": self.device.identity, **state, **more})

    def _retest(self, after_s: float) -> None:
        """Test again later, with backoff.

        There is one thread at a time, and a new request shortens its wait.
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
                    self._wake.wait(left)
            if self._stop.is_set() or self._passes():
                return
            pause = min(2 * pause, MAX_RETEST_S)
            with self._wake:
                self._retest_at = time.monotonic() + pause

    def _passes(self) -> bool:
        """Test once more; return True when no further test is needed."""
        if self.order is Order.maintenance:
            return False
        is_bad = self.health is health.Health.bad
        try:
            locked = locks.acquire(
                self._folder, self.device.name, lambda: not self._stop.is_set(), self._stop
            )
        except InfrastructureError as problem:
            log.warning("device %s can't be tested: %s", self.device.identity, problem)
            return False
        with closing(locked), suppress(InfrastructureError):
            self.check(locked, "it was bad before" if is_bad else "the service asked for it")
            return True
        return False

    def _remembered(self) -> tuple[health.Health, str | None]:
        """Return an earlier worker's record of this device: a restart makes no bad device good.

        Without a canary nothing could make it good again, so it is good.
        """
        if self.canary is None:
            return health.Health.good, None
        with suppress(OSError, ValueError, KeyError, TypeError):
            stored = json.loads(self._memory.read_text())
            return health.Health(stored["health"]), str(stored["reason"])
        return health.Health.good, None


def _store(path: Path, content: Mapping[str, Any] | None) -> None:
    """Write a small file as a whole, or remove it where there is no content."""
    try:
        if content is None:
            path.unlink(missing_ok=True)
            return
        part = path.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(content))
        part.replace(path)
    except OSError as problem:
        log.warning("can't write %s: %s", path, problem.strerror)

"""`gonogo worker`, and create_worker(): the composition root of the device side.

A worker is one process that serves its devices' queues. It needs GONOGO_BROKER_URL and its host's
identity only. It never touches the database and never runs a kernel itself.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from celery import Celery, signals
from celery.platforms import SecurityWarning

import gonogo_settings as all_settings
from gonogo.errors import InfrastructureError
from gonogo.spec.executors import ON_CHIPS
from gonogo.spec.kernels import registry as kernels
from gonogo_settings import Settings
from gonogo_workers import queue
from gonogo_workers.attempts.attempt import DeviceContext
from gonogo_workers.attempts.warm_up import warm_up
from gonogo_workers.devices import chips, discovery
from gonogo_workers.devices.discovery import Device
from gonogo_workers.devices.health_monitor import DeviceHealthMonitor, canary_of
from gonogo_workers.devices.orders import Orders
from gonogo_workers.devices.telemetry import Telemetry
from gonogo_workers.executors import builds_file, registry
from gonogo_workers.executors.builds_file import BuildsFile, interpreters
from gonogo_workers.executors.child_user import child_user, keep_capabilities_here
from gonogo_workers.executors.kernel_host import sweep
from gonogo_workers.executors.pool import HostPool
from gonogo_workers.executors.reaping import FAMILY
from gonogo_workers.executors.registry import ExecutorSpec
from gonogo_workers.executors.threads import Threads
from gonogo_workers.messages import exchange
from gonogo_workers.messages.cancel import CancelWatcher
from gonogo_workers.messages.chunk_record import ChunkRecord
from gonogo_workers.messages.consumed_queues import QueueConsumer
from gonogo_workers.messages.heartbeat import Pulse, Vitals
from gonogo_workers.messages.identity import load as identity_of
from gonogo_workers.messages.result_sender import ResultSender
from gonogo_workers.messages.sealing import Sealer
from gonogo_workers.messages.timekeeper import Timekeeper
from gonogo_workers.queue.numbers import ServiceClock
from gonogo_workers.served_devices import ServedDevices, one_executor_each
from gonogo_workers.tasks import Runner, WorkerContext, register

if TYPE_CHECKING:
    from redis import Redis

log = logging.getLogger(__name__)

ALL = "all"
CLOSE_S = 1.0
"""The seconds for which a stopping worker tries to send the rest before it writes it to disk."""


def main(executor: str = "emulator", device: str | None = None) -> int:
    """Serve chunks until SIGTERM or SIGINT, as `create_worker` says; return 0 in good order."""
    settings = all_settings.load()
    logging.basicConfig(
        level=settings.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
        force=False,
    )
    # "You're root": so is every container's first process, and nothing is unpickled here
    warnings.simplefilter("ignore", SecurityWarning)
    return create_worker(settings, executor, device).run()


def create_worker(
    settings: Settings, executor: str = "emulator", device: str | None = None
) -> Worker:
    """Return the parts of a worker, which has claimed its devices.

    `executor`: one name, several separated by commas, or "all" that this host has. `device` names
    the chip of executors that run on one, else the virtual device of the first executor (default:
    the first free one). Raises InfrastructureError or FieldError when something is missing.
    """
    if settings.broker_url is None:
        raise InfrastructureError("a worker needs GONOGO_BROKER_URL")
    kernels.load(settings.kernels)
    state_folder = Path(settings.var_dir).absolute()
    sealer = Sealer(state_folder)
    client = queue.redis_client(settings.broker_url)
    FAMILY.adopt()
    child_user()  # a wrong setting is said now, not at the first chunk
    keep_capabilities_here()
    app = queue.make_app(settings.broker_url)
    app.conf.worker_disable_prefetch = True
    app.steps["consumer"].add(QueueConsumer)
    known, builds = registry.known(settings.executors), builds_file.read(settings.builds)
    names = _executors(executor, known, builds)
    known = {**known, **{name: registry.find(name, settings.executors) for name in names}}
    lock_folder = Path(settings.lock_dir or Path(settings.var_dir) / "locks").absolute()
    claimed = _claimed(
        names, device, settings, lock_folder, sealer.host, interpreters(known, builds)
    )
    first = claimed[names[0]]
    worker = f"{first.identity}/{os.getpid()}"
    spool = Path(settings.spool_dir or Path(settings.var_dir) / "spool").absolute()
    sender = ResultSender(client, sealer, spool / first.name.replace(":", "-"))
    pool, vitals, threads = HostPool(), Vitals(), Threads(max(2, min(4, os.cpu_count() or 2)))
    watcher = CancelWatcher(settings.broker_url, sealer)

    def report(body: Mapping[str, Any]) -> None:
        at = sealer.clock.now()
        sender.post(queue.BACKGROUND_QUEUE, queue.HEALTH, {"worker": worker, "at": at, **body})

    def on_change() -> None:
        QueueConsumer.update()
        pulse.soon()
        served.hand_back(runner)

    def publish_beat(body: Mapping[str, Any]) -> None:
        queue.publish(client, queue.HEARTBEAT_QUEUE, sealer.seal(queue.HEARTBEAT, body))

    served = ServedDevices(
        worker,
        claimed,
        {
            place.name: DeviceHealthMonitor(
                place,
                lock_folder,
                canary_of(known[name], builds, place),
                settings,
                report=report,
                changed=on_change,
            )
            for name, place in one_executor_each(claimed).items()
        },
        sealer.clock,
    )
    device_contexts = {
        name: DeviceContext(
            worker=worker,
            device=place,
            lock_folder=lock_folder,
            pool=pool,
            threads=threads,
            sender=sender,
            vitals=vitals,
            monitor=served.monitors[place.name],
            telemetry=Telemetry(settings.tt_smi, place.chip, lock_folder),
            chunk_deadline_s=settings.chunk_deadline_s,
            tt_triage=settings.tt_triage,
        )
        for name, place in claimed.items()
    }
    record = ChunkRecord(state_folder, sealer.clock.now)
    runner = Runner(
        WorkerContext(settings, sealer, record, known, device_contexts, builds, watcher)
    )
    register(app, runner, QueueConsumer.wake)
    monitors = list(served.monitors.values())
    pulse = Pulse(served.identity, vitals, publish_beat, settings.heartbeat_s)
    timekeeper = Timekeeper(lambda: exchange.hello(client, identity_of(state_folder)), sealer.clock)
    orders = Orders(settings.broker_url, sealer, monitors, state_folder)
    return Worker(
        app=app,
        hostname=f"{first.name}-{os.getpid()}@{first.host}",
        log_level=settings.log_level.upper(),
        wanted_queues=served.wanted_queues,
        beginning=[
            lambda: _synchronize(client, state_folder, sealer.clock),
            _sweep,
            lambda: pool.prepare(known[names[0]]),
            lambda: threads.submit(warm_up),
            pulse.start,
            timekeeper.start,
            orders.start,
            *(monitor.begin for monitor in monitors),
        ],
        stopping=[sender.hurry, *(monitor.stop for monitor in monitors), runner.stop],
        closing=[
            runner.stop,
            *(monitor.stop for monitor in monitors),
            orders.close,
            timekeeper.close,
            pulse.stop,
            watcher.close,
            pool.close,
            lambda: sender.close(CLOSE_S),
            threads.close,
        ],
    )


def _synchronize(client: Redis, state_folder: Path, clock: ServiceClock) -> None:
    """Take the service's time. Raises InfrastructureError where this host's is wrong."""
    answer = exchange.hello(
        client, identity_of(state_folder), wait_s=math.inf, waiting=_tell_waiting
    )
    exchange.check_clock(answer)
    clock.synchronize(answer.skew_s)
    log.info("this host's clock differs from the service's by %.3f s", answer.skew_s)


def _sweep() -> None:
    if count := sweep():
        log.warning("deleted %d folders left by killed workers", count)


def _tell_waiting() -> None:
    log.warning(
        "waiting for the service to tell the time: does `gonogo background` run, and is this host"
        " enrolled (`gonogo hosts list` on the server)?"
    )


@dataclass(frozen=True)
class Worker:
    """A worker that is ready to serve its devices' queues."""

    app: Celery
    hostname: str
    log_level: str
    wanted_queues: Callable[[], dict[str, bool]]
    """Returns every queue, and whether its device takes work now."""
    beginning: Sequence[Callable[[], object]]
    """Called in order before it serves."""
    stopping: Sequence[Callable[[], object]]
    """Called in the signal handler, when the worker is told to stop."""
    closing: Sequence[Callable[[], object]]
    """Called at the end."""

    def run(self) -> int:
        """Run Celery in this thread until SIGTERM or SIGINT; return 0 after an orderly stop."""
        QueueConsumer.wanted_queues = staticmethod(self.wanted_queues)
        for begin in self.beginning:
            begin()

        def on_shutdown(**_: Any) -> None:
            for stop in (*self.stopping, QueueConsumer.wake):
                stop()

        signals.worker_shutting_down.connect(on_shutdown, weak=False)
        queues = list(self.wanted_queues())
        log.info("worker %s serves %s", self.hostname, ", ".join(queues))
        try:
            served = self.app.Worker(
                pool="threads",
                concurrency=1,
                queues=queues,
                hostname=self.hostname,
                loglevel=self.log_level,
                without_gossip=True,
                without_mingle=True,
                without_heartbeat=True,
                quiet=True,
            )
            served.start()
            return int(served.exitcode or 0)
        finally:
            signals.worker_shutting_down.disconnect(on_shutdown)
            for close in self.closing:
                close()


def _executors(executor: str, known: Mapping[str, ExecutorSpec], builds: BuildsFile) -> list[str]:
    """Return the names of the executors to serve."""
    if executor == ALL:
        of_builds = (str(entry["executor"]) for entry in builds.builds.values())
        return registry.ready(known, (*builds.executors, *of_builds))
    return [name.strip() for name in executor.split(",")]


def _claimed(
    names: Sequence[str],
    device: str | None,
    settings: Settings,
    lock_folder: Path,
    host: str,
    pythons: Sequence[str],
) -> dict[str, Device]:
    """Claim a device for each executor. Raises FieldError or InfrastructureError."""
    host_chips = (
        chips.look(settings.tt_smi, pythons) if device is not None or ON_CHIPS & set(names) else ()
    )
    return {
        name: discovery.claim(
            name,
            device if index == 0 or name in ON_CHIPS else None,
            lock_folder,
            host=host,
            arch=settings.arch,
            board=settings.board,
            chips=host_chips,
        )
        for index, name in enumerate(names)
    }

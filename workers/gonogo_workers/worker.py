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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from celery import Celery
from celery.platforms import SecurityWarning

from gonogo import settings as all_settings
from gonogo.errors import InfrastructureError
from gonogo.kernels import registry as kernels
from gonogo.settings import Settings
from gonogo_workers import queue
from gonogo_workers.attempts.attempt import DeviceContext
from gonogo_workers.claims import Claims, claim
from gonogo_workers.devices import locks
from gonogo_workers.devices.health_monitor import DeviceHealthMonitor, canary_of
from gonogo_workers.devices.orders import Orders
from gonogo_workers.devices.telemetry import Telemetry
from gonogo_workers.executors.child_user import child_user, keep_capabilities_here
from gonogo_workers.executors.kernel_host import sweep
from gonogo_workers.executors.pool import HostPool
from gonogo_workers.executors.reaping import FAMILY
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
from gonogo_workers.serving import Worker
from gonogo_workers.tasks import Runner, WorkerContext, register

if TYPE_CHECKING:
    from redis import Redis

log = logging.getLogger(__name__)

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


def create_worker(settings: Settings, executor: str, device: str | None) -> Worker:
    """Return the parts of a worker, which has claimed its devices.

    `executor`: one name, several separated by commas, or "all" that this host has. `device` names
    the chip of executors that run on one, else the virtual device of the first executor (default:
    the first free one). Raises InfrastructureError or FieldError when something is missing.
    """
    broker_url = settings.broker_url
    if broker_url is None:
        raise InfrastructureError("a worker needs GONOGO_BROKER_URL")
    _prepare_process(settings)
    app, client = _application(broker_url), queue.redis_client(broker_url)
    folders = Folders.of(settings)
    sealer = Sealer(folders.state)
    claims = claim(settings, executor, device, folders.locks, sealer.host)
    first = claims.first
    sender = ResultSender(client, sealer, folders.spool / first.name.replace(":", "-"))
    threads = Threads(max(2, min(4, os.cpu_count() or 2)))
    shared = Shared(f"{first.identity}/{os.getpid()}", HostPool(), threads, Vitals(), sender)
    watcher = CancelWatcher(broker_url, sealer)

    def on_change() -> None:
        QueueConsumer.update()
        pulse.soon()
        served.hand_back(runner)

    served = _served(settings, claims, folders, shared, sealer.clock, on_change)
    contexts = _contexts(settings, claims, folders, shared, served)
    record = ChunkRecord(folders.state, sealer.clock.now)
    runner = Runner(
        WorkerContext(settings, sealer, record, claims.specs, contexts, claims.builds, watcher)
    )
    register(app, runner, QueueConsumer.wake)
    monitors = list(served.monitors.values())
    pulse = Pulse(served.identity, shared.vitals, _publisher(client, sealer), settings.heartbeat_s)
    timekeeper = Timekeeper(
        lambda: exchange.hello(client, identity_of(folders.state)), sealer.clock
    )
    orders = Orders(broker_url, sealer, monitors, folders.state)
    return Worker(
        app=app,
        hostname=f"{first.name}-{os.getpid()}@{first.host}",
        log_level=settings.log_level.upper(),
        wanted_queues=served.wanted_queues,
        beginning=[
            lambda: _synchronize(client, folders.state, sealer.clock),
            _sweep,
            lambda: shared.pool.prepare(claims.first_executor),
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
            shared.pool.close,
            lambda: sender.close(CLOSE_S),
            threads.close,
        ],
    )


@dataclass(frozen=True)
class Folders:
    """The folders of a worker on its host."""

    state: Path
    locks: Path
    spool: Path

    @staticmethod
    def of(settings: Settings) -> Folders:
        """Return those that the settings name; the others are below `var_dir`."""
        state = Path(settings.var_dir).absolute()
        return Folders(state, locks.folder_of(settings), state / "spool")


@dataclass(frozen=True)
class Shared:
    """The parts that all devices of a worker use."""

    worker: str
    pool: HostPool
    threads: Threads
    vitals: Vitals
    sender: ResultSender


def _application(broker_url: str) -> Celery:
    app = queue.make_app(broker_url)
    app.conf.worker_disable_prefetch = True
    app.steps["consumer"].add(QueueConsumer)
    return app


def _prepare_process(settings: Settings) -> None:
    """Load the kernels of plug-ins, and adopt what killed children leave behind."""
    kernels.load(settings.kernels)
    FAMILY.adopt()
    child_user()  # a wrong setting is said now, not at the first chunk
    keep_capabilities_here()


def _publisher(client: Redis, sealer: Sealer) -> Callable[[Mapping[str, Any]], None]:
    """Return what publishes a heartbeat; a lost one is not sent again."""

    def publish(body: Mapping[str, Any]) -> None:
        queue.publish(client, queue.HEARTBEAT_QUEUE, sealer.seal(queue.HEARTBEAT, body))

    return publish


def _served(
    settings: Settings,
    claims: Claims,
    folders: Folders,
    shared: Shared,
    clock: ServiceClock,
    changed: Callable[[], None],
) -> ServedDevices:
    """Return the claimed devices, each with the monitor of its health."""

    def report(body: Mapping[str, Any]) -> None:
        message = {"worker": shared.worker, "at": clock.now(), **body}
        shared.sender.post(queue.BACKGROUND_QUEUE, queue.HEALTH, message)

    monitors = {
        place.name: DeviceHealthMonitor(
            place,
            folders.locks,
            canary_of(claims.specs[name], claims.builds, place),
            settings,
            report=report,
            changed=changed,
        )
        for name, place in one_executor_each(claims.devices).items()
    }
    return ServedDevices(shared.worker, claims.devices, monitors, clock)


def _contexts(
    settings: Settings, claims: Claims, folders: Folders, shared: Shared, served: ServedDevices
) -> dict[str, DeviceContext]:
    """Return what each executor's attempts need."""
    return {
        name: DeviceContext(
            worker=shared.worker,
            device=place,
            lock_folder=folders.locks,
            pool=shared.pool,
            threads=shared.threads,
            sender=shared.sender,
            vitals=shared.vitals,
            monitor=served.monitors[place.name],
            telemetry=Telemetry(settings.tt_smi, place.chip, folders.locks),
            chunk_deadline_s=settings.chunk_deadline_s,
            tt_triage=settings.tt_triage,
        )
        for name, place in claims.devices.items()
    }


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

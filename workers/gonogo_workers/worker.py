"""`gonogo worker`, and create_worker(): the composition root of the device side.

A worker is one process that serves its devices' queues. The broker (GONOGO_BROKER_URL) wakes it;
everything else it asks the service over HTTPS, with the token of its host (`gonogo hosts join`). It
never touches the database and never runs a kernel itself.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from celery.platforms import SecurityWarning

from gonogo import settings as all_settings
from gonogo.errors import InfrastructureError
from gonogo.kernels import registry as kernels
from gonogo.settings import Settings
from gonogo_workers import queue
from gonogo_workers.attempts.attempt import DeviceContext
from gonogo_workers.attempts.heartbeat import Heartbeat, Vitals
from gonogo_workers.claims import Claims, claim
from gonogo_workers.devices import locks
from gonogo_workers.devices.health_monitor import DeviceHealthMonitor, canary_of
from gonogo_workers.devices.telemetry import Telemetry
from gonogo_workers.executors.child_user import child_user, keep_capabilities_here
from gonogo_workers.executors.kernel_host import sweep
from gonogo_workers.executors.pool import HostPool
from gonogo_workers.executors.reaping import FAMILY
from gonogo_workers.executors.threads import Threads
from gonogo_workers.messages.consumed_queues import QueueConsumer
from gonogo_workers.served_devices import ServedDevices, one_executor_each
from gonogo_workers.server.client import Answer, Server
from gonogo_workers.server.host_file import CurrentHost
from gonogo_workers.server.sender import Sender
from gonogo_workers.serving import Worker
from gonogo_workers.tasks import Runner, WorkerContext, register

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
    logging.getLogger("httpx").setLevel(logging.WARNING)  # a line for each heartbeat
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
    folders = Folders.of(settings)
    host = CurrentHost(folders.state)
    server = Server(lambda: host.current, host.current.url, settings.ca_file)
    claims = claim(settings, executor, device, folders.locks, host.current.name)
    first = claims.first
    heartbeats: list[Heartbeat] = []

    def answered(path: str, answer: Answer) -> None:
        for beat in heartbeats:
            beat.answered(path, answer)

    def over(path: str) -> None:
        for beat in heartbeats:
            beat.over(path)

    sender = Sender(
        server, folders.spool / first.name.replace(":", "-"), answered=answered, over=over
    )
    threads = Threads(max(2, min(4, os.cpu_count() or 2)))
    shared = Shared(f"{first.identity}/{os.getpid()}", HostPool(), threads, Vitals(), sender)

    def changed() -> None:
        QueueConsumer.update()
        heartbeat.soon()
        served.hand_back(runner)

    served = _served(settings, claims, folders, shared, changed)
    monitors = list(served.monitors.values())
    heartbeat = Heartbeat(
        server,
        served.identity,
        shared.vitals,
        monitors,
        settings.heartbeat_s,
        QueueConsumer.update,
    )
    heartbeats.append(heartbeat)
    contexts = _contexts(settings, claims, folders, shared, served)
    context = WorkerContext(settings, server, heartbeat, claims.specs, contexts, claims.builds)
    runner = Runner(context)
    app = queue.make_app(broker_url)
    app.steps["consumer"].add(QueueConsumer)
    register(app, runner, QueueConsumer.wake)

    def wanted_queues() -> dict[str, bool]:
        queues = served.wanted_queues()
        return {name: takes and heartbeat.is_heard for name, takes in queues.items()}

    return Worker(
        app=app,
        hostname=f"{first.name}-{os.getpid()}@{first.host}",
        log_level=settings.log_level.upper(),
        wanted_queues=wanted_queues,
        beginning=[
            _sweep,
            lambda: shared.pool.prepare(claims.first_executor),
            heartbeat.start,
            *(monitor.begin for monitor in monitors),
        ],
        stopping=[sender.hurry, *(monitor.stop for monitor in monitors), runner.stop],
        closing=[
            runner.stop,
            *(monitor.stop for monitor in monitors),
            heartbeat.close,
            shared.pool.close,
            lambda: sender.close(CLOSE_S),
            threads.close,
            server.close,
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
    sender: Sender


def _prepare_process(settings: Settings) -> None:
    """Load the kernels of plug-ins, and adopt what killed children leave behind."""
    kernels.load(settings.kernels)
    FAMILY.adopt()
    child_user()  # a wrong setting is said now, not at the first chunk
    keep_capabilities_here()


def _served(
    settings: Settings,
    claims: Claims,
    folders: Folders,
    shared: Shared,
    changed: Callable[[], None],
) -> ServedDevices:
    """Return the claimed devices, each with the monitor of its health."""

    def report(body: Mapping[str, Any]) -> None:
        shared.sender.post("POST", "/hosts/self/health", {"worker": shared.worker, **body})

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
    return ServedDevices(shared.worker, claims.devices, monitors)


def _contexts(
    settings: Settings, claims: Claims, folders: Folders, shared: Shared, served: ServedDevices
) -> dict[str, DeviceContext]:
    """Return what each executor's attempts need."""
    return {
        name: DeviceContext(
            worker=shared.worker,
            executor=name,
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


def _sweep() -> None:
    if count := sweep():
        log.warning("deleted %d folders left by killed workers", count)

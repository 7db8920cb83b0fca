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
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from celery.platforms import SecurityWarning

from gonogo import settings as all_settings
from gonogo.errors import InfrastructureError
from gonogo.kernels import registry as kernels
from gonogo.settings import Settings
from gonogo_workers import queue
from gonogo_workers.attempts.context import DeviceContext, Vitals
from gonogo_workers.attempts.heartbeat import Heartbeat
from gonogo_workers.devices import locks
from gonogo_workers.devices.discovery import Device
from gonogo_workers.devices.health_monitor import DeviceHealthMonitor, Order, canary_of
from gonogo_workers.devices.telemetry import Telemetry
from gonogo_workers.executors.child_user import child_user, keep_capabilities_here
from gonogo_workers.executors.kernel_host import sweep
from gonogo_workers.executors.pool import HostPool
from gonogo_workers.executors.reaping import FAMILY
from gonogo_workers.executors.threads import Threads
from gonogo_workers.served_devices import ServedDevices, claim
from gonogo_workers.server.client import Server
from gonogo_workers.server.host_file import CurrentHost
from gonogo_workers.server.sender import Sender
from gonogo_workers.serving import QueueConsumer, Worker
from gonogo_workers.tasks import Runner, register

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
    kernels.load(settings.kernels)
    FAMILY.adopt()  # what killed children leave behind
    child_user()  # a wrong setting is said now, not at the first chunk
    keep_capabilities_here()
    state, lock_folder = Path(settings.var_dir).absolute(), locks.folder_of(settings)
    host = CurrentHost(state)
    claims = claim(settings, executor, device, lock_folder, host.current.name)
    first_executor, first = next(iter(claims.devices.items()))
    name = f"{first.identity}/{os.getpid()}"

    server = Server(lambda: host.current, host.current.url, settings.ca_file)
    vitals, pool = Vitals(), HostPool()
    threads, drawing = Threads(max(2, min(4, os.cpu_count() or 2))), Threads(1)
    heartbeat = Heartbeat(server, vitals, settings.heartbeat_s, QueueConsumer.update)
    spool = state / "spool" / first.name.replace(":", "-")
    sender = Sender(server, spool, answered=heartbeat.answered, over=heartbeat.over)

    def report(body: Mapping[str, Any]) -> None:
        sender.post("POST", "/hosts/self/health", {"worker": name, **body})

    def changed() -> None:
        QueueConsumer.update()
        heartbeat.soon()
        for monitor in served.monitors:
            if not monitor.takes_work:
                runner.hand_back(monitor.device, monitor.order is not Order.work)

    def context_of(executor: str, device: Device) -> DeviceContext:
        if device.name not in monitors:  # its first executor's canary tells the device's health
            canary = canary_of(claims.specs[executor], claims.builds, device)
            monitors[device.name] = DeviceHealthMonitor(
                device, lock_folder, canary, settings, report=report, changed=changed
            )
        return DeviceContext(
            worker=name,
            executor=executor,
            device=device,
            lock_folder=lock_folder,
            pool=pool,
            threads=threads,
            drawing=drawing,
            sender=sender,
            vitals=vitals,
            monitor=monitors[device.name],
            telemetry=Telemetry(settings.tt_smi, device.chip, lock_folder),
            chunk_deadline_s=settings.chunk_deadline_s,
            tt_triage=settings.tt_triage,
        )

    monitors: dict[str, DeviceHealthMonitor] = {}
    served = ServedDevices({one: context_of(one, place) for one, place in claims.devices.items()})
    heartbeat.serve(served.identity, served.monitors)
    runner = Runner(settings, server, heartbeat, claims, served.contexts)
    app = queue.make_app(broker_url)
    app.steps["consumer"].add(QueueConsumer)
    register(app, runner, QueueConsumer.wake)

    def wanted_queues() -> dict[str, bool]:
        queues = served.wanted_queues()
        return {queue: takes and heartbeat.is_heard for queue, takes in queues.items()}

    stop_monitors = [monitor.stop for monitor in served.monitors]
    return Worker(
        app=app,
        hostname=f"{first.name}-{os.getpid()}@{first.host}",
        log_level=settings.log_level.upper(),
        wanted_queues=wanted_queues,
        beginning=[
            _sweep,
            lambda: pool.prepare(claims.specs[first_executor]),
            heartbeat.start,
            *(monitor.begin for monitor in served.monitors),
        ],
        stopping=[sender.hurry, *stop_monitors, runner.stop],
        closing=[
            runner.stop,
            *stop_monitors,
            heartbeat.close,
            pool.close,
            lambda: sender.close(CLOSE_S),
            threads.close,
            drawing.close,
            server.close,
        ],
    )


def _sweep() -> None:
    if count := sweep():
        log.warning("deleted %d folders left by killed workers", count)

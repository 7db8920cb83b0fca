"""`gonogo worker`: one process that serves its devices' queues; wires up the device side.

It needs GONOGO_BROKER_URL and GONOGO_WORKER_KEY only. It never touches the database and never runs
a kernel itself.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from celery import Celery, signals
from celery.platforms import SecurityWarning

import gonogo_settings as all_settings
from gonogo.errors import InfrastructureError
from gonogo_settings import Settings
from gonogo_workers import queue
from gonogo_workers.messages.consumed_queues import QueueConsumer

log = logging.getLogger(__name__)

CLOSE_S = 1.0
"""The seconds for which a stopping worker tries to send the rest before it writes it to disk."""
ALL = "all"


def main(
    executor: str = "emulator", device: str | None = None, settings: Settings | None = None
) -> int:
    """Serve chunks until SIGTERM or SIGINT; return 0 after an orderly stop.

    `executor`: one name, several separated by commas, or "all" that this host has. `device` names
    the chip of executors that run on one, else the virtual device of the first executor (default:
    the first free one). Raises InfrastructureError or FieldError before it starts when something is
    missing.
    """
    settings = settings or all_settings.load()
    logging.basicConfig(
        level=settings.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
        force=False,
    )
    if settings.broker_url is None or settings.worker_key is None:
        raise InfrastructureError("a worker needs GONOGO_BROKER_URL and GONOGO_WORKER_KEY")
    if settings.numba_cache_dir:
        # numba reads it when it is imported
        os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(settings.numba_cache_dir).absolute()))
    app = queue.make_app(settings.broker_url)
    app.conf.worker_disable_prefetch = True
    app.steps["consumer"].add(QueueConsumer)
    # "You're root": so is every container's first process, and nothing is unpickled here
    warnings.simplefilter("ignore", SecurityWarning)
    return _serve(app, settings, executor, device)


def _serve(app: Celery, settings: Settings, executor: str, device: str | None) -> int:
    """Build the parts, run Celery in this thread, and take the parts down again."""
    # Imported after numba's cache folder is chosen; `gonogo worker --help` needs none of this
    from gonogo.errors import FieldError
    from gonogo.spec.executors import ON_CHIPS
    from gonogo_workers.attempts.attempt import DeviceContext
    from gonogo_workers.attempts.warm_up import warm_up
    from gonogo_workers.devices import chips, discovery
    from gonogo_workers.devices.health_monitor import DeviceHealthMonitor, Order, canary_of
    from gonogo_workers.devices.orders import Orders
    from gonogo_workers.devices.telemetry import Telemetry
    from gonogo_workers.executors import builds_file, registry
    from gonogo_workers.executors.builds_file import interpreters
    from gonogo_workers.executors.kernel_host import sweep
    from gonogo_workers.executors.pool import HostPool
    from gonogo_workers.executors.threads import Threads
    from gonogo_workers.messages.cancel import CancelWatcher
    from gonogo_workers.messages.heartbeat import EXPIRES_S, Pulse, Vitals
    from gonogo_workers.messages.result_sender import ResultSender
    from gonogo_workers.tasks import Runner, WorkerContext, register

    broker_url, worker_key = settings.broker_url, settings.worker_key
    assert broker_url is not None
    assert worker_key is not None
    key = worker_key.get_secret_value()
    known = registry.known(settings.executors)
    builds = builds_file.read(settings.builds)
    named_executors = (
        *builds.executors,
        *(str(entry["executor"]) for entry in builds.builds.values()),
    )
    names = (
        registry.ready(known, named_executors)
        if executor == ALL
        else [name.strip() for name in executor.split(",")]
    )
    for name in names:
        if name not in known:
            raise FieldError("executor", name, "unknown executor", limit=", ".join(known))
    lock_folder = Path(settings.lock_dir or Path(settings.var_dir) / "locks").absolute()
    host_chips = (
        chips.look(settings.tt_smi, interpreters(known, builds))
        if device is not None or ON_CHIPS & set(names)
        else ()
    )
    devices = {
        name: discovery.claim(
            name,
            device if index == 0 or name in ON_CHIPS else None,
            lock_folder,
            arch=settings.arch,
            board=settings.board,
            chips=host_chips,
        )
        for index, name in enumerate(names)
    }
    first = devices[names[0]]
    worker = f"{first.identity}/{os.getpid()}"
    spool = Path(
        settings.spool_dir or Path(settings.var_dir) / "spool"
    ).absolute() / first.name.replace(":", "-")
    sender = ResultSender(app, key, spool)
    pool, vitals, threads = HostPool(), Vitals(), Threads(max(2, min(4, os.cpu_count() or 2)))
    watcher = CancelWatcher(broker_url)

    def report(body: Mapping[str, Any]) -> None:
        sender.post(queue.BACKGROUND_QUEUE, queue.HEALTH, {"worker": worker, **body})

    def on_change() -> None:
        QueueConsumer.update()
        pulse.soon()
        for monitor in monitors.values():
            if not monitor.takes_work:
                runner.hand_back(monitor.device, monitor.order is not Order.work)

    # One monitor per device: executors on the same chip share it
    monitors: dict[str, DeviceHealthMonitor] = {}
    for name, claimed in devices.items():
        if claimed.name not in monitors:
            canary = canary_of(known[name], builds, claimed)
            monitors[claimed.name] = DeviceHealthMonitor(
                claimed, lock_folder, canary, settings, report=report, changed=on_change
            )
    telemetry = {
        name: Telemetry(settings.tt_smi, claimed.chip) for name, claimed in devices.items()
    }
    device_contexts = {
        name: DeviceContext(
            worker,
            claimed,
            lock_folder,
            pool,
            threads,
            sender,
            vitals,
            monitors[claimed.name],
            telemetry[name].latest,
            settings.chunk_deadline_s,
            settings.tt_triage,
        )
        for name, claimed in devices.items()
    }
    runner = Runner(WorkerContext(settings, key, known, device_contexts, builds, watcher))
    register(app, runner, QueueConsumer.wake)
    if count := sweep():
        log.warning("deleted %d folders left by killed workers", count)
    pool.prepare(known[names[0]])
    threads.submit(warm_up)

    def publish_beat(body: Mapping[str, Any]) -> None:
        queue.send(app, key, queue.HEARTBEAT_QUEUE, queue.HEARTBEAT, body, expires_s=EXPIRES_S)

    def wanted_queues() -> dict[str, bool]:
        return {claimed.queue: monitors[claimed.name].takes_work for claimed in devices.values()}

    def identity() -> dict[str, Any]:
        return {
            "worker": worker,
            "queues": [name for name, served in wanted_queues().items() if served],
            "device": first.identity,
            "host": first.host,
            "executors": names,
            "devices": [
                {**monitors[claimed.name].facts, "queue": claimed.queue}
                for claimed in devices.values()
            ],
        }

    pulse = Pulse(identity, vitals, publish_beat, settings.heartbeat_s)
    QueueConsumer.wanted_queues = staticmethod(wanted_queues)
    orders = Orders(broker_url, list(monitors.values()))
    orders.start()
    for monitor in monitors.values():
        monitor.begin()

    def on_shutdown(**_: Any) -> None:
        sender.hurry()
        for monitor in monitors.values():
            monitor.stop()
        runner.stop()
        QueueConsumer.wake()

    signals.worker_shutting_down.connect(on_shutdown, weak=False)
    queues = list(wanted_queues())
    log.info("worker %s serves %s", worker, ", ".join(queues))
    try:
        served = app.Worker(
            pool="threads",
            concurrency=1,
            queues=queues,
            hostname=f"{first.name}-{os.getpid()}@{first.host}",
            loglevel=settings.log_level.upper(),
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
            quiet=True,
        )
        served.start()
        return int(served.exitcode or 0)
    finally:
        signals.worker_shutting_down.disconnect(on_shutdown)
        runner.stop()
        for monitor in monitors.values():
            monitor.stop()
        orders.close()
        pulse.stop()
        watcher.close()
        pool.close()
        sender.close(CLOSE_S)
        threads.close()

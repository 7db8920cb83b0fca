"""`gonogo worker`: one process that serves the queue of its device; the composition root of the
device side.

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
from gonogo_workers.messages.consumed_queues import Wake

log = logging.getLogger(__name__)

CLOSE_S = 1.0
"""How long a stopping worker tries to send what is left before it puts it on disk."""
ALL = "all"


def main(
    executor: str = "emulator", device: str | None = None, settings: Settings | None = None
) -> int:
    """Serve chunks until SIGTERM or SIGINT; 0 when it stopped in good order.

    `executor`: one, several separated by commas, or "all" that this host knows; `device` names the
    chip of those that run on one, else the virtual device of the first (default: the first free
    one). Raises InfrastructureError or FieldError before it has begun when something is missing.
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
        os.environ.setdefault(
            "NUMBA_CACHE_DIR", str(Path(settings.numba_cache_dir).absolute())
        )  # read when numba is imported
    app = queue.make_app(settings.broker_url)
    app.conf.worker_disable_prefetch = True
    app.steps["consumer"].add(Wake)
    warnings.simplefilter(
        "ignore", SecurityWarning
    )  # "you're root": so is every container's first process; nothing is unpickled here
    return _serve(app, settings, executor, device)


def _serve(app: Celery, settings: Settings, executor: str, device: str | None) -> int:
    """Put the parts together, run Celery in this thread, take the parts down again."""
    # Only now: numba's cache folder is chosen, and `gonogo worker --help` needs none of this
    from gonogo.errors import FieldError
    from gonogo_workers.attempts.attempt import Bench
    from gonogo_workers.attempts.warm_up import warm_up
    from gonogo_workers.devices import chips, discovery
    from gonogo_workers.devices.keeper import Keeper, Order, canary_of
    from gonogo_workers.devices.orders import Orders
    from gonogo_workers.devices.telemetry import Telemetry
    from gonogo_workers.executors import builds_file, registry
    from gonogo_workers.executors.builds_file import interpreters
    from gonogo_workers.executors.kernel_host import sweep
    from gonogo_workers.executors.pool import HostPool
    from gonogo_workers.executors.threads import Threads
    from gonogo_workers.messages.cancel import CancelWatcher
    from gonogo_workers.messages.heartbeat import EXPIRES_S, Pulse, Vitals
    from gonogo_workers.messages.result_sender import Postman
    from gonogo_workers.tasks import Runner, Shop, register

    broker_url, worker_key = settings.broker_url, settings.worker_key
    assert broker_url is not None
    assert worker_key is not None
    key = worker_key.get_secret_value()
    known = registry.known(settings.executors)
    builds = builds_file.read(settings.builds)
    spoken_of = (*builds.executors, *(str(entry["executor"]) for entry in builds.builds.values()))
    names = (
        registry.ready(known, spoken_of)
        if executor == ALL
        else [name.strip() for name in executor.split(",")]
    )
    for name in names:
        if name not in known:
            raise FieldError(
                "executor", name, "unknown executor", limit="one of " + ", ".join(known)
            )
    lock_folder = Path(settings.lock_dir or Path(settings.var_dir) / "locks").absolute()
    there = (
        chips.look(settings.tt_smi, interpreters(known, builds))
        if device is not None or discovery.ON_CHIPS & set(names)
        else ()
    )
    devices = {
        name: discovery.claim(
            name,
            device if index == 0 or name in discovery.ON_CHIPS else None,
            lock_folder,
            arch=settings.arch,
            board=settings.board,
            chips=there,
        )
        for index, name in enumerate(names)
    }
    first = devices[names[0]]
    worker = f"{first.identity}/{os.getpid()}"
    spool = Path(
        settings.spool_dir or Path(settings.var_dir) / "spool"
    ).absolute() / first.name.replace(":", "-")
    postman = Postman(app, key, spool)
    pool, vitals, threads = HostPool(), Vitals(), Threads(max(2, min(4, os.cpu_count() or 2)))
    watcher = CancelWatcher(broker_url)

    def report(body: Mapping[str, Any]) -> None:
        postman.post(queue.BACKGROUND_QUEUE, queue.HEALTH, {"worker": worker, **body})

    def changed() -> None:
        Wake.choose()
        pulse.soon()
        for keeper in keepers.values():
            if not keeper.takes_work:
                runner.hand_back(keeper.device, keeper.order is not Order.work)

    # One keeper per device: executors on one chip share it
    keepers: dict[str, Keeper] = {}
    for name, each in devices.items():
        if each.name not in keepers:
            canary = canary_of(known[name], builds, each)
            keepers[each.name] = Keeper(
                each, lock_folder, canary, settings, report=report, changed=changed
            )
    telemetry = {name: Telemetry(settings.tt_smi, each.chip) for name, each in devices.items()}
    benches = {
        name: Bench(
            worker,
            each,
            lock_folder,
            pool,
            threads,
            postman,
            vitals,
            keepers[each.name],
            telemetry[name].latest,
            settings.chunk_deadline_s,
            settings.tt_triage,
        )
        for name, each in devices.items()
    }
    runner = Runner(Shop(settings, key, known, benches, builds, watcher))
    register(app, runner, Wake.wake)
    if swept := sweep():
        log.warning("deleted %d folders that killed workers had left", swept)
    pool.prepare(known[names[0]])
    threads.submit(warm_up)

    def beat(body: Mapping[str, Any]) -> None:
        queue.send(app, key, queue.HEARTBEAT_QUEUE, queue.HEARTBEAT, body, expires_s=EXPIRES_S)

    def wanted() -> dict[str, bool]:
        return {each.queue: keepers[each.name].takes_work for each in devices.values()}

    def identity() -> dict[str, Any]:
        return {
            "worker": worker,
            "queues": [name for name, served in wanted().items() if served],
            "device": first.identity,
            "host": first.host,
            "executors": names,
            "devices": [
                {**keepers[each.name].facts, "queue": each.queue} for each in devices.values()
            ],
        }

    pulse = Pulse(identity, vitals, beat, settings.heartbeat_s)
    Wake.wanted = staticmethod(wanted)
    orders = Orders(broker_url, list(keepers.values()))
    orders.start()
    for keeper in keepers.values():
        keeper.begin()

    def on_shutdown(**_: Any) -> None:
        postman.hurry()
        for keeper in keepers.values():
            keeper.stop()
        runner.stop()
        Wake.wake()

    signals.worker_shutting_down.connect(on_shutdown, weak=False)
    queues = list(wanted())
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
        for keeper in keepers.values():
            keeper.stop()
        orders.close()
        pulse.stop()
        watcher.close()
        pool.close()
        postman.close(CLOSE_S)
        threads.close()

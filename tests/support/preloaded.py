"""Imports of the server that forks the tests' processes (see forked.py): each of
them would spend seconds of a core on it."""

from __future__ import annotations

from importlib import import_module

from gonogo_service.cli.operate.processes import loading

MODULES = (
    *("anyio._backends._asyncio", "billiard.pool", "celery.app.amqp", "celery.app.control"),
    *("celery.app.events", "celery.app.log", "celery.app.routes", "celery.apps.worker"),
    *("celery.backends.base", "celery.concurrency.thread", "celery.events.dispatcher"),
    *("celery.events.receiver", "celery.fixups.django", "celery.worker.autoscale"),
    *("celery.worker.consumer", "celery.worker.consumer.delayed_delivery"),
    *("celery.worker.pidbox", "celery.worker.strategy", "encodings.idna", "gonogo.cli.app"),
    *("gonogo_service.cli.operate.processes", "gonogo_service.app"),
    *("gonogo_service.background.process", "gonogo_service.kit.logs"),
    *("gonogo_workers.queue.transport", "gonogo_workers.worker", "kombu.mixins"),
    *("kombu.transport.redis", "uvicorn", "uvicorn.lifespan.on", "uvicorn.loops.asyncio"),
    *("uvicorn.loops.auto", "uvicorn.protocols.websockets.auto"),
)


def preload() -> None:
    """Import the modules, and build what each process of a service builds at its start."""
    with loading():
        for module in MODULES:
            import_module(module)

        from sqlalchemy.orm import configure_mappers

        from gonogo_dashboards import pages

        configure_mappers()
        pages.environment()


preload()

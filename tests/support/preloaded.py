"""Imports and compiled code of the server that forks the tests' processes (see forked.py): each of
them would spend seconds of a core on it."""

from __future__ import annotations

import gc
from importlib import import_module

from gonogo.numerics import jit
from gonogo_workers.attempts.warm_up import warm_up

for module in (
    "celery.apps.worker",
    "celery.concurrency.thread",
    "celery.worker.autoscale",
    "celery.worker.consumer",
    "celery.worker.strategy",
    "gonogo_cli.app",
    "gonogo_cli.operate.processes",
    "gonogo_service.app",
    "gonogo_service.background.process",
    "gonogo_workers.queue.transport",
    "gonogo_workers.worker",
    "kombu.transport.redis",
    "uvicorn",
):
    import_module(module)

warm_up()
jit._in_every_case.clear()  # an API and a command do without compiled code
# a process that collects garbage would copy the pages of all these objects
gc.freeze()

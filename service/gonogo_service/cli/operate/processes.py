"""`gonogo serve`, `background` and `worker`: each kind of process alone, as in production."""

from __future__ import annotations

import atexit
import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer

import gonogo.settings
from gonogo.cli.kit.extras import require_background
from gonogo.errors import InfrastructureError, JobError


@contextmanager
def loading() -> Iterator[None]:
    """Import modules and build the process's parts without the garbage collector.

    All of it stays: looking at it again and again took a seventh of the start, and each later full
    collection would stop the process for 80 to 150 ms.
    """
    gc.disable()
    try:
        yield
        gc.collect()
        gc.freeze()
    finally:
        gc.enable()


def need(config: gonogo.settings.Settings, *names: str) -> None:
    """Raise JobError naming the variables that are not set."""
    missing = [
        f"{gonogo.settings.PREFIX}{name.upper()}" for name in names if getattr(config, name) is None
    ]
    if missing:
        raise JobError(
            f"{' and '.join(missing)} must be set (manual: settings); `gonogo up` needs no settings"
        )


def serve(
    host: str | None = typer.Option(None, help="Address to bind (default: GONOGO_HOST)."),
    port: int | None = typer.Option(None, help="Port to bind (default: GONOGO_PORT)."),
    fd: int | None = typer.Option(
        None, help="Number of an open listening socket to use: 3 under a socket unit of systemd."
    ),
) -> None:
    """Run the HTTP service: API and pages."""
    config = gonogo.settings.load()
    need(config, "database_url", "broker_url", "secret_key")
    with loading():
        from gonogo_service.app import create_app
        from gonogo_service.kit import logs
        from gonogo_service.kit.server import make_server

        logs.configure()
        app = create_app(config)
    port = config.port if port is None else port
    end_streams = app.state.context.end_streams
    server = make_server(app, config, end_streams, host=host or config.host, port=port)
    # requests compute in threads: so the event loop, which answers probes, gets its turn sooner
    sys.setswitchinterval(0.0001)
    server.run(sockets=None if fd is None else [socket.socket(fileno=fd)])
    if not server.started:
        raise InfrastructureError("the HTTP service could not start; the log says why")


def background() -> None:
    """Run the dispatcher, the reaper, the assessments and the delivery of messages.

    Several copies are safe.
    """
    config = gonogo.settings.load()
    need(config, "database_url", "broker_url", "secret_key")
    require_background()
    stop = threading.Event()
    with loading():
        from gonogo_service.background.process import create_background
        from gonogo_service.kit import logs

        logs.configure()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
        process = create_background(config, stop)
    process.run()


def worker(
    executor: str = typer.Option(
        "emulator", help="Executor: emulator, one of GONOGO_EXECUTORS, several with commas, or all."
    ),
    device: str | None = typer.Option(None, help="The chip to use; default: the first free one."),
) -> None:
    """Run a device worker: take chunks, run kernels on its device, send every seed's numbers."""
    config = gonogo.settings.load()
    need(config, "broker_url")
    with loading():
        from gonogo_workers.worker import main

    _leave(main(executor=executor, device=device))


def _leave(code: int) -> NoReturn:
    """End the process without taking the interpreter apart.

    Taking it apart has kept a stopped worker for more than 15 s: threads that wait for Redis or the
    service die wherever they are, and may hold a library's lock.
    """
    atexit._run_exitfuncs()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

"""`gonogo serve`, `background` and `worker`: each kind of process alone, as in production."""

from __future__ import annotations

import gc
import signal
import socket
import threading

import typer

import gonogo_settings
from gonogo.errors import InfrastructureError, JobError

GRACE_S = 3
"""Requests in flight get this long when the API stops; `gonogo up` must be gone within 10 s
altogether."""


def need(config: gonogo_settings.Settings, *names: str) -> None:
    """Raise JobError naming the variables that are not set."""
    missing = [
        f"{gonogo_settings.PREFIX}{name.upper()}" for name in names if getattr(config, name) is None
    ]
    if missing:
        raise JobError(
            f"{' and '.join(missing)} must be set (docs/settings.md); `gonogo up` needs no settings"
        )


def serve(
    host: str | None = typer.Option(None, help="Address to bind (default: GONOGO_HOST)."),
    port: int | None = typer.Option(None, help="Port to bind (default: GONOGO_PORT)."),
    fd: int | None = typer.Option(None, hidden=True, help="An open listening socket to use."),
) -> None:
    """Run the HTTP service: API and pages."""
    import uvicorn

    from gonogo_service.app import create_app
    from gonogo_service.kit import logs

    logs.configure()
    config = gonogo_settings.load()
    need(config, "database_url", "broker_url", "secret_key")
    app = create_app(config)
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            host=host or config.host,
            port=config.port if port is None else port,
            log_level=config.log_level,
            access_log=config.log_level == "debug",
            server_header=False,
            timeout_graceful_shutdown=GRACE_S,
            proxy_headers=bool(config.proxies),
            forwarded_allow_ips=list(config.proxies) or None,
        )
    )
    gc.collect()
    # what was loaded stays: without this each full collection looks at all of it, 80 to 150 ms in
    # which no page is answered
    gc.freeze()
    gc.set_threshold(
        20_000,
        20,
        20,
        # a page makes thousands of objects, hardly any in cycles: looking for them took a tenth of
        # its time
    )
    server.run(sockets=None if fd is None else [socket.socket(fileno=fd)])
    if not server.started:
        raise InfrastructureError("the HTTP service could not start; the log says why")


def background() -> None:
    """Run dispatcher, ingest of results, reaper and delivery; several copies are safe."""
    config = gonogo_settings.load()
    need(config, "database_url", "broker_url", "worker_key")
    from gonogo_service.background.process import create_background
    from gonogo_service.kit import logs

    logs.configure()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    create_background(config, stop).run()


def worker(
    executor: str = typer.Option(
        "emulator", help="Executor: emulator, one of GONOGO_EXECUTORS, several with commas, or all."
    ),
    device: str | None = typer.Option(None, help="The chip to use; default: the first free one."),
) -> None:
    """Run a device worker: take chunks, run kernels on its device, send every seed's numbers."""
    config = gonogo_settings.load()
    need(config, "broker_url", "worker_key")
    from gonogo_workers.worker import main

    raise typer.Exit(main(executor=executor, device=device))

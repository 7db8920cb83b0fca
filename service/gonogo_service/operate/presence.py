"""The presence of processes, a lease for each: without one of the API no host's silence counts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from gonogo_service.kit.database import engine as engines
from gonogo_service.kit.outbox import leases

API: Final = "api/"
BACKGROUND: Final = "presence/"
"""The beginnings of the names of the leases; other leases are duties."""


@contextmanager
def present(engine: Engine) -> Iterator[None]:
    """Hold a lease that says that this process answers, on a thread of its own."""
    holder, stop = leases.new_holder(), threading.Event()

    def run() -> None:
        while True:
            with suppress(SQLAlchemyError), engines.session(engine) as session:
                leases.acquire(session, API + holder, holder)
            if stop.wait(leases.RENEW_S):
                break
        with suppress(SQLAlchemyError), engines.session(engine) as session:
            leases.release(session, holder)

    thread = threading.Thread(target=run, name="presence", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(2.0)

"""`gonogo worker`: one process that serves its devices' queues; prepares its environment.

It needs GONOGO_BROKER_URL and GONOGO_WORKER_KEY only. It never touches the database and never runs
a kernel itself.
"""

from __future__ import annotations

import logging
import os
import sys
import warnings
from pathlib import Path

from celery.platforms import SecurityWarning

import gonogo_settings as all_settings
from gonogo_settings import Settings


def main(
    executor: str = "emulator", device: str | None = None, settings: Settings | None = None
) -> int:
    """Serve chunks until SIGTERM or SIGINT; return 0 after an orderly stop.

    `executor` and `device` as in `create_worker`. Raises InfrastructureError or FieldError before
    it starts when something is missing.
    """
    settings = settings or all_settings.load()
    logging.basicConfig(
        level=settings.log_level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
        force=False,
    )
    if settings.numba_cache_dir:
        os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(settings.numba_cache_dir).absolute()))
    # "You're root": so is every container's first process, and nothing is unpickled here
    warnings.simplefilter("ignore", SecurityWarning)
    # imports numba, which then reads the folder of its cache
    from gonogo_workers.process import create_worker

    return create_worker(settings, executor, device).run()

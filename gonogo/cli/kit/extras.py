"""The extras of the install: which one brings a package that a command misses."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib.util import find_spec

from gonogo.errors import JobError

PACKAGES = {
    "parquet": ("pyarrow",),
    "worker": ("celery", "kombu", "redis"),
    "service": (
        "alembic",
        "apprise",
        "cachetools",
        "cronsim",
        "cryptography",
        "fastapi",
        "jinja2",
        "jwt",
        "markupsafe",
        "orjson",
        "prometheus_client",
        "psycopg",
        "sqlalchemy",
        "standardwebhooks",
        "starlette",
        "tenacity",
        "uvicorn",
    ),
}
"""Extra -> names of modules that a bare install doesn't have."""


def missing(module: str | None) -> JobError | None:
    """Return the error where `module` can't be imported; None if no extra brings it."""
    package = (module or "").partition(".")[0]
    extra = next((extra for extra, packages in PACKAGES.items() if package in packages), None)
    return _error(package, extra) if extra else None


def require_service() -> None:
    """Raise JobError if a package of the service is missing; none is imported.

    For commands whose child processes need them.
    """
    _require((*PACKAGES["worker"], *PACKAGES["service"]), "all")


def require_background() -> None:
    """Raise JobError if a package of the background is missing; none is imported.

    It shares its first imports with the worker, whose extra is not enough.
    """
    _require(PACKAGES["service"], "service")


def _require(packages: Iterable[str], extra: str) -> None:
    for package in packages:
        try:
            is_installed = package in sys.modules or find_spec(package) is not None
        except ImportError:
            is_installed = False
        if not is_installed:
            raise _error(package, extra)


def _error(package: str, extra: str) -> JobError:
    return JobError(f'{package} is not installed; needs: pip install "gonogo[{extra}]"')

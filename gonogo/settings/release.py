"""The version of this software, asked for in one place."""

from __future__ import annotations

import tomllib
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"


@lru_cache(maxsize=1)
def release() -> str:
    """Return the version in this checkout's pyproject.toml, else the installed package's.

    It is "unknown" for a bare copy of the sources.
    """
    try:
        project = tomllib.loads(PROJECT.read_text("utf-8"))["project"]
        if project["name"] == "gonogo":
            return str(project["version"])
    except (
        OSError,
        KeyError,
        ValueError,
    ):  # an installed wheel has no such file beside it, or somebody else's
        pass
    try:
        return version("gonogo")
    except PackageNotFoundError:
        return "unknown"

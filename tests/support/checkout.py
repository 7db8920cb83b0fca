"""Where this checkout's packages are: for interpreters that have no editable install of it."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOMES = {
    "gonogo": ROOT,
    "gonogo_service": ROOT / "service",
    "gonogo_workers": ROOT / "workers",
    "gonogo_dashboards": ROOT / "dashboards",
    "gonogo_migrations": ROOT / "migrations",
}
"""Each package, and the folder that holds it."""
PYTHONPATH = os.pathsep.join(dict.fromkeys(map(str, HOMES.values())))

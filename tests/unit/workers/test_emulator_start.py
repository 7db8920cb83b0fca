"""A child that runs the emulator starts anew for each chunk, so it loads only what it needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from checkout import PYTHONPATH

START = """
import sys
from gonogo_workers.executors.emulator_executor import EmulatorExecutor
from gonogo.kernels.registry import loaded
EmulatorExecutor("correct")
heavy = {"pydantic_settings", "gonogo.settings", "redis", "celery", "httpx"}
print(*loaded(), sorted(heavy & set(sys.modules)))
"""


def test_the_emulator_s_child_has_its_worker_s_kernels_and_none_of_its_settings(
    example_site: Path,
) -> None:
    path = os.pathsep.join((PYTHONPATH, str(example_site)))
    done = subprocess.run(
        [sys.executable, "-P", "-c", START],
        env={**os.environ, "PYTHONPATH": path, "GONOGO_KERNELS": "l2norm_fw, l2norm_gradients,"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split(" ", 2) == ["l2norm_fw", "l2norm_gradients", "[]\n"]

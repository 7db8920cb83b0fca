"""--gonogo-capture: the hooks of pytest for gonogo.capture, for suites that don't know GoNoGo.

This runs in each process with tests; pytest-xdist's processes send their counts at their ends.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gonogo.capture.capturing import Capture, CapturedKernel
from gonogo.capture.patches import Patches

if sys.version_info >= (3, 11):  # noqa: UP036 - a worker runs it in Python 3.10, too
    import tomllib
else:  # pytest brings it
    import tomli as tomllib

TABLE = "tool.gonogo.capture"
COUNTS = "gonogo_capture"
MAX_REASONS = 5
"""Reasons that the summary names, the most frequent first."""


class Capturing:
    """The plug-in that replaces comparison functions while tests are collected and run."""

    def __init__(self, config: pytest.Config) -> None:
        """Replace what is imported. Raises UsageError for a wrong table."""
        self._capture = Capture(read_table(config.rootpath / "pyproject.toml"))
        self._patches = Patches(self._capture.observe)
        self._config = config
        self._patches.apply()

    def pytest_collectstart(self) -> None:
        """Replace what earlier files have imported."""
        self._patches.apply()

    def pytest_collection_finish(self) -> None:
        """Replace what the last file has imported."""
        self._patches.apply()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Assign the following comparisons to this test."""
        self._capture.begin(item.nodeid, str(item.path))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self) -> None:
        """Replace what fixtures and earlier tests have imported."""
        self._patches.apply()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self) -> None:
        """Send the phase's comparisons to the gatherer, which adds them to the report."""
        self._capture.publish()

    def pytest_sessionfinish(self) -> None:
        """Send the counts to pytest-xdist's controller."""
        if hasattr(self._config, "workeroutput"):
            counts = [self._capture.calls, dict(self._capture.not_read)]
            self._config.workeroutput[COUNTS] = counts

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add the counts of a process of pytest-xdist."""
        calls, not_read = getattr(node, "workeroutput", {}).get(COUNTS, (0, {}))
        self._capture.calls += calls
        self._capture.not_read.update(not_read)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Write how many calls were captured, and which could not be read."""
        not_read: Counter[str] = self._capture.not_read
        line = f"captured {self._capture.calls - not_read.total()} comparisons"
        if not_read:
            reasons = ", ".join(f"{n} {why}" for why, n in not_read.most_common(MAX_REASONS))
            line += f"; {not_read.total()} more could not be read: {reasons}"
        terminalreporter.write_line(line)

    def pytest_unconfigure(self) -> None:
        """Put the original functions back: pytest may run again in this process."""
        self._patches.restore()


def read_table(path: Path) -> list[CapturedKernel]:
    """Return the table of kernels in a pyproject.toml; [] without one. Raises UsageError."""
    try:
        document = tomllib.loads(path.read_text("utf-8"))
        table = document.get("tool", {}).get("gonogo", {}).get("capture", {})
        return [CapturedKernel.of(pattern, fields) for pattern, fields in table.items()]
    except FileNotFoundError:
        return []
    except (AttributeError, OSError, ValueError) as problem:
        raise pytest.UsageError(f"{path}: [{TABLE}]: {problem}") from None

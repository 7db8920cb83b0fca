"""Attach every comparison to pytest's report of its test, in the process of the tests.

So comparisons also travel through pytest-xdist.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from dataclasses import asdict
from typing import Any

import pytest

from gonogo.public import recorded
from gonogo.public.recorded import Comparison

ATTRIBUTE = "gonogo"
"""A report's attribute with JSON text, which every connection between processes carries."""
HOLLOW = "gonogo_hollow"
"""A report's attribute that marks a green call with a hollow pass: --gonogo-strict turns it red."""
SEED_FIXTURE = "gonogo_seed"


class Gatherer:
    """The plug-in that every process with tests registers."""

    def __init__(self, strict: bool) -> None:
        self.strict = strict
        self._test: list[Comparison] = []
        self._phase: list[Comparison] = []
        self._stop = recorded.listen(self._add)

    def _add(self, comparison: Comparison) -> None:
        self._phase.append(comparison)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, Any, None]:
        """Attach the phase's comparisons to its report.

        In strict mode a green call with a hollow pass turns red.
        """
        answer = yield
        report: pytest.TestReport = answer.get_result()
        if report.when == "setup":
            self._test.clear()
        self._test += self._phase
        seed = seed_of(item)
        if self._phase or seed is not None:
            content = {
                "name": plain_name(item, seed),
                "seed": seed,
                "comparisons": [asdict(comparison) for comparison in self._phase],
            }
            setattr(report, ATTRIBUTE, json.dumps(content))
        self._phase.clear()
        hollow = [comparison for comparison in self._test if comparison.hollow]
        if not (hollow and report.when == "call" and report.passed) or hasattr(report, "wasxfail"):
            return
        setattr(report, HOLLOW, True)
        if self.strict:
            report.outcome = "failed"
            words = (comparison.words for comparison in hollow)
            title = "hollow pass (--gonogo-strict): green, and wrong"
            report.longrepr = "\n".join([title, *words])

    def pytest_unconfigure(self) -> None:
        """Stop listening: pytest may run again in this process."""
        self._stop()


def seed_of(item: pytest.Item) -> int | None:
    """Return the seed of the test's data, if the test uses `gonogo_seed`."""
    callspec = getattr(item, "callspec", None)
    seed = None if callspec is None else callspec.params.get(SEED_FIXTURE)
    is_seed = isinstance(seed, int) and not isinstance(seed, bool) and 0 <= seed < 2**53
    return seed if is_seed else None


def plain_name(item: pytest.Item, seed: int | None) -> str:
    """Return the node id without the seed: the seeds of a test share one history."""
    callspec = getattr(item, "callspec", None)
    if seed is None or callspec is None or not item.nodeid.endswith(f"[{callspec.id}]"):
        return item.nodeid
    rest = re.sub(rf"(^|-){id_of(seed)}(?=-|$)", "", callspec.id, count=1).removeprefix("-")
    return item.nodeid[: -len(callspec.id) - 2] + (f"[{rest}]" if rest else "")


def id_of(seed: int) -> str:
    """Return the text for a seed in a node id."""
    return f"seed{seed}"


def gathered(report: object) -> dict[str, Any]:
    """Return the content that the gatherer attached to a report; {} if there is none."""
    text = getattr(report, ATTRIBUTE, None)
    content: dict[str, Any] = {} if text is None else json.loads(text)
    if content:
        content["comparisons"] = [Comparison(**values) for values in content["comparisons"]]
    return content

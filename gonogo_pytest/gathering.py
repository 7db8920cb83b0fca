"""In the process of the tests: hears of every comparison and sends it along with pytest's report of
the test, through pytest-xdist too.
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
"""Of a report: JSON text, which every way between processes carries."""
STRICT = "gonogo_strict"
"""Of a report that is red only because of --gonogo-strict."""
SEED_FIXTURE = "gonogo_seed"


class Gatherer:
    """Registered in every process that runs tests."""

    def __init__(self, strict: bool) -> None:
        self.strict = strict
        self._test: list[Comparison] = []
        self._phase: list[Comparison] = []
        self._stop = recorded.listen(self._heard)

    def _heard(self, comparison: Comparison) -> None:
        self._phase.append(comparison)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, Any, None]:
        """What the phase compared goes with its report; a green call with a hollow pass turns red
        in strict mode.
        """
        answer = yield
        report: pytest.TestReport = answer.get_result()
        if report.when == "setup":
            self._test.clear()
        self._test += self._phase
        seed = seed_of(item)
        if self._phase or seed is not None:
            told = {
                "name": plain_name(item, seed),
                "seed": seed,
                "comparisons": [asdict(each) for each in self._phase],
            }
            setattr(report, ATTRIBUTE, json.dumps(told))
        self._phase.clear()
        hollow = [each for each in self._test if each.hollow]
        if (
            self.strict
            and hollow
            and report.when == "call"
            and report.passed
            and not hasattr(report, "wasxfail")
        ):
            report.outcome = "failed"
            report.longrepr = "\n".join(
                [
                    "hollow pass (--gonogo-strict): green, and wrong",
                    *(each.words for each in hollow),
                ]
            )
            setattr(report, STRICT, True)

    def pytest_unconfigure(self) -> None:
        """Hear no more: pytest may be run again in this process."""
        self._stop()


def seed_of(item: pytest.Item) -> int | None:
    """Return the seed that the test drew its data by, where it took `gonogo_seed`."""
    callspec = getattr(item, "callspec", None)
    seed = None if callspec is None else callspec.params.get(SEED_FIXTURE)
    return (
        seed if isinstance(seed, int) and not isinstance(seed, bool) and 0 <= seed < 2**53 else None
    )


def plain_name(item: pytest.Item, seed: int | None) -> str:
    """Return the node id without the seed: the seeds of a test are one history."""
    callspec = getattr(item, "callspec", None)
    if seed is None or callspec is None or not item.nodeid.endswith(f"[{callspec.id}]"):
        return item.nodeid
    rest = re.sub(rf"(^|-){id_of(seed)}(?=-|$)", "", callspec.id, count=1).removeprefix("-")
    return item.nodeid[: -len(callspec.id) - 2] + (f"[{rest}]" if rest else "")


def id_of(seed: int) -> str:
    """What stands in a node id for a seed."""
    return f"seed{seed}"


def told_by(report: object) -> dict[str, Any]:
    """What the gatherer sent along with a report; {} where it had nothing to say."""
    text = getattr(report, ATTRIBUTE, None)
    return (
        {}
        if text is None
        else {
            **(told := json.loads(text)),
            "comparisons": [Comparison(**each) for each in told["comparisons"]],
        }
    )

"""The states of a device's health, and its canary.

The canary is a LayerNorm, known to be right, in several shapes. Rounding must explain its results;
how far its program replays them says whether a card computes as we think.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from gonogo.errors import InfrastructureError
from gonogo.judging.inputs import generate, quantise
from gonogo.judging.judging import judge
from gonogo.judging.replayed import Replayed, closest, replayed, together
from gonogo.spec.executors import EXECUTORS
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import Explanation
from gonogo.workloads import programs_on_wormhole
from gonogo_workers.executors.base import ExecutorFailure, FloatArray
from gonogo_workers.executors.builds_file import ResolvedBuild
from gonogo_workers.executors.kernel_host import KernelHost

CANARIES: Final[Sequence[Mapping[str, Any]]] = tuple(
    {"kernel": "layernorm_bw", "shape": [1, 1, *shape]}
    for shape in ((32, 128), (33, 150), (64, 1024))
)
"""The canary's tests; the digests of the first are compared between devices."""
CANARY_BUILDS: Final[Mapping[str, str]] = {
    row.name: row.canary for row in EXECUTORS.values() if row.canary is not None
}
"""The build known to be right, per executor.

Another executor has no canary unless the builds file names it (`[executors.NAME] canary`).
"""
CANARY_DEADLINE_S: Final = 120.0
LAST_WORDS: Final = 2000
"""The characters of the child's log that a failed canary quotes."""


class Health(StrEnum):
    """The states of a device's health."""

    good = "good"
    """Its last canary passed."""
    suspect = "suspect"
    """Many unrelated tests fail on it and not on other devices; it still takes work."""
    bad = "bad"
    """The canary failed after every recovery step; it takes no work and tests itself again."""
    maintenance = "maintenance"
    """A person is working on it."""


class DeviceSick(InfrastructureError):
    """The canary failed: no result of this device counts until it is good again."""


@dataclass(frozen=True)
class CanaryRun:
    """A canary that passed.

    Attributes:
        digests: of the first test, by output.
        replay: how the program that comes closest replays all tests; None where none is known.
    """

    digests: Mapping[str, str]
    replay: Replayed | None


def canary(
    resolved: ResolvedBuild,
    build: str,
    *,
    on_wormhole: bool,
    lock_fd: int | None = None,
    started: Callable[[KernelHost], None] = lambda _: None,
) -> CanaryRun:
    """Run the canary in a separate child.

    The child shares the chip's lock. Raises DeviceSick when the canary fails. `started` receives
    the child before it works. on_wormhole: whether a Wormhole's programs are tried, where the build
    declares none.
    """
    tests = [TestSpec.parse(dict(test)) for test in CANARIES]
    drawn = [generate(test, 0) for test in tests]
    given = [quantise(test, raw) for test, raw in zip(tests, drawn, strict=True)]
    outputs = _outputs(tests, given, resolved, build, lock_fd, started)
    digests: dict[str, str] = {}
    for test, raw, arrays, values in zip(tests, drawn, given, outputs, strict=True):
        judged = judge(
            test,
            raw,
            arrays,
            values,
            arithmetic=None,
            produced=resolved.produced,
            on_wormhole=on_wormhole,
            with_limits=False,
        )
        if judged.explanation not in (Explanation.explained, Explanation.inconclusive):
            raise DeviceSick(f"the canary's numbers are {judged.explanation.value}")
        digests = digests or {
            name: str(output.statistics["digest"]) for name, output in judged.outputs.items()
        }
    names = [resolved.arithmetic] if resolved.arithmetic else []
    if on_wormhole and not names:
        names = programs_on_wormhole(tests[0])
    runs = list(zip(tests, given, outputs, strict=True))
    replays = [together(replayed(*run, name) for run in runs) for name in names]
    return CanaryRun(digests, closest(replays))


def _outputs(
    tests: Sequence[TestSpec],
    given: Sequence[Mapping[str, FloatArray]],
    resolved: ResolvedBuild,
    build: str,
    lock_fd: int | None,
    started: Callable[[KernelHost], None],
) -> list[dict[str, FloatArray]]:
    """Return the outputs of each test, all of one child."""
    deadline = time.monotonic() + CANARY_DEADLINE_S
    host: KernelHost | None = None
    try:
        host = KernelHost(resolved.executor, resolved.environment)
        started(host)
        host.open(build, lock_fd=lock_fd, deadline_s=CANARY_DEADLINE_S)
        return [
            host.run(test, arrays, 0, resolved.produced, deadline - time.monotonic())
            for test, arrays in zip(tests, given, strict=True)
        ]
    except ExecutorFailure as problem:
        last_words = problem.log_tail.strip()[-LAST_WORDS:]
        more = f"; its log ends: {last_words}" if last_words else ""
        raise DeviceSick(f"the canary did not run: {problem}{more}") from problem
    finally:
        if host is not None:
            host.kill()

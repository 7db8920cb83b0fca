"""The states of a device's health, and its canary.

The canary is a small known LayerNorm whose result must be explained by rounding.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final

from gonogo.errors import InfrastructureError
from gonogo.judging.inputs import generate, quantise
from gonogo.judging.judging import judge
from gonogo.spec.executors import EXECUTORS
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import Explanation
from gonogo_workers.executors.base import ExecutorFailure, output_shapes, shaped_inputs
from gonogo_workers.executors.builds_file import ResolvedBuild
from gonogo_workers.executors.kernel_host import KernelHost
from gonogo_workers.executors.slots import Slot

CANARY: Final[Mapping[str, Any]] = {"kernel": "layernorm_bw", "shape": [1, 1, 32, 128]}
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


def canary(
    resolved: ResolvedBuild,
    build: str,
    *,
    lock_fd: int | None = None,
    started: Callable[[KernelHost], None] = lambda _: None,
) -> dict[str, str]:
    """Run the canary in a separate child and return the digest of each output.

    The child shares the chip's lock. Raises DeviceSick when the canary fails.
    `started` receives the child before it works.
    """
    test = TestSpec.parse(dict(CANARY))
    raw = generate(test, 0)
    given = quantise(test, raw)
    deadline = time.monotonic() + CANARY_DEADLINE_S
    host: KernelHost | None = None
    try:
        host = KernelHost(resolved.executor, resolved.environment)
        started(host)
        host.open(build, lock_fd=lock_fd, deadline_s=CANARY_DEADLINE_S)
        inputs = shaped_inputs(test, given)
        shapes = {name: array.shape for name, array in inputs.items()}
        slot = Slot(host.folder, "canary", shapes, output_shapes(test, resolved.produced))
        slot.write(inputs)
        host.submit({"test": test.canonical(), "seed": 0, **slot.request()})
        host.receive(deadline)
        outputs = slot.read()
    except ExecutorFailure as problem:
        last_words = problem.log_tail.strip()[-LAST_WORDS:]
        raise DeviceSick(
            f"the canary did not run: {problem}"
            + (f"; its log ends: {last_words}" if last_words else "")
        ) from problem
    finally:
        if host is not None:
            host.kill()
    judged = judge(
        test, raw, given, outputs, arithmetic=resolved.arithmetic, produced=resolved.produced
    )
    if judged.explanation is not Explanation.explained:
        raise DeviceSick(f"the canary's numbers are {judged.explanation.value}")
    return {
        name: str(output["digest"])
        for name, output in judged.to_json()["outputs"].items()
        if output.get("digest")
    }

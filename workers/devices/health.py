"""Can this device be trusted? The canary: a small known LayerNorm whose result must be explained by rounding."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from gonogo.inputs import generate, quantise
from gonogo.judging import judge
from gonogo.problems import InfrastructureError
from gonogo.tests import TestSpec
from gonogo.verdicts import Explanation
from workers.executors.base import ExecutorFailure, output_shapes, shaped_inputs
from workers.executors.kernel_host import KernelHost
from workers.executors.meanings import Meaning
from workers.executors.registry import EMULATOR
from workers.executors.slots import Slot

CANARY: Final[Mapping[str, Any]] = {"kernel": "layernorm_bw", "shape": [1, 1, 32, 128]}
CANARY_BUILDS: Final[Mapping[str, str]] = {EMULATOR: "correct"}
"""The build known to be right, per executor; an executor without one has no canary."""
CANARY_DEADLINE_S: Final = 30.0
LAST_WORDS: Final = 2000
"""Characters of the child's log that a failed canary quotes."""


class DeviceSick(InfrastructureError):
    """The canary failed: nothing that this device says counts until someone has looked at it."""


def canary(meaning: Meaning) -> bool:
    """Run the canary in a child of its own. True: good. False: this executor has none. Raises DeviceSick when it fails."""
    build = CANARY_BUILDS.get(meaning.executor.name)
    if build is None:
        return False
    test = TestSpec.parse(dict(CANARY))
    raw = generate(test, 0)
    given = quantise(test, raw)
    host = KernelHost(meaning.executor, meaning.environment)
    try:
        host.open(build)
        inputs = shaped_inputs(test, given)
        slot = Slot(host.folder, "canary", {name: array.shape for name, array in inputs.items()}, output_shapes(test))
        slot.write(inputs)
        host.submit({"test": test.canonical(), "seed": 0, **slot.request()})
        host.receive(time.monotonic() + CANARY_DEADLINE_S)
        outputs = slot.read()
        slot.delete()
    except ExecutorFailure as problem:
        last_words = problem.log_tail.strip()[-LAST_WORDS:]
        raise DeviceSick(f"the canary did not run: {problem}" + (f"; its log ends: {last_words}" if last_words else "")) from problem
    finally:
        host.kill()
    judged = judge(test, raw, given, outputs, profile="tt-train")
    if judged.explanation is not Explanation.explained:
        raise DeviceSick(f"the canary's numbers are {judged.explanation.value}")
    return True

"""One seed, run in a kernel host: for the tests of hosts and for the programs that they start.

It imports little, because such a program starts anew for its test.
"""

from __future__ import annotations

import time
from typing import Any

from gonogo.judging.inputs import generate, quantise
from gonogo.spec.test_spec import TestSpec
from gonogo_workers.executors.base import output_shapes, shaped_inputs
from gonogo_workers.executors.kernel_host import KernelHost
from gonogo_workers.executors.registry import ExecutorSpec
from gonogo_workers.executors.slots import Slot
from patience import WAIT_S

SPEC = ExecutorSpec("troublesome", "troublesome", "Troublesome")
TEST = TestSpec.parse({"kernel": "layernorm_bw", "shape": [2, 3, 40]})
GIVEN = shaped_inputs(TEST, quantise(TEST, generate(TEST, 1)))


def slot_of(host: KernelHost, test: TestSpec = TEST) -> Slot:
    """Return the tensor files for one seed, with the inputs written."""
    inputs = GIVEN if test is TEST else shaped_inputs(test, quantise(test, generate(test, 1)))
    slot = Slot(
        host.folder,
        f"s{time.monotonic_ns()}",
        {name: array.shape for name, array in inputs.items()},
        output_shapes(test),
    )
    slot.write(inputs)
    return slot


def run(host: KernelHost, deadline_s: float = WAIT_S) -> dict[str, Any]:
    """Run one seed and return its outputs."""
    slot = slot_of(host)
    host.submit({"test": TEST.canonical(), "seed": 1, **slot.request()})
    host.receive(time.monotonic() + deadline_s)
    return dict(slot.read())

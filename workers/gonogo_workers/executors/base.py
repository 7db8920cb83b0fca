"""The interface of an executor, the conventions of its tensors, and the failures of a run.

ExecutorFailure (an InfrastructureError: it says nothing about the kernel's numbers)
├── KernelError       the kernel raised, or returned outputs that can't be judged: verdict `error`
├── KernelHang        no answer within the seed's deadline: verdict `hang`
├── KernelCrash       its process ended by itself: verdict `crash`
├── HostUnavailable   the child process could not be started (interpreter, module, disk):
│                     another host may be able to
└── Stopped           we ended it (cancel, shutdown): no verdict
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from gonogo.errors import InfrastructureError
from gonogo.spec.test_spec import TestSpec

FloatArray = NDArray[np.float32]
Arrays = Mapping[str, FloatArray]
LONGEST = {"ms": 1e12, "kernel_s": 1e9}
"""Three decades, in the unit of each duration of an answer: no kernel takes as long."""


def duration_of(answer: Mapping[str, Any], name: str = "ms") -> float | None:
    """Return a duration in a child's answer; None for what is none.

    Code under test can write to the socket, so an answer holds anything.
    """
    spent = answer.get(name)
    if isinstance(spent, bool) or not isinstance(spent, int | float):
        return None
    return float(spent) if 0 <= spent < LONGEST[name] else None


class Executor(Protocol):
    """A way to run kernels.

    `Factory(build: str)` makes one; it must raise for an unknown build, so that no wrong result
    comes later. This is also the whole contract of a plug-in (docs/executors.md).
    """

    def run(
        self, test: Mapping[str, Any], inputs: dict[str, FloatArray]
    ) -> Mapping[str, FloatArray]:
        """Run the kernel once, for one seed and repeat.

        `test` is the canonical spec (fields with default values are left out). `inputs` are
        C-contiguous float32 arrays, whole numbers int32: x, dy of `test["shape"]`; gamma, beta
        `[N]`; mean, rstd `shape[:-1]` (for other kernels: docs/kernels.md). The outputs follow the
        same conventions.

        An attribute `kernel_s` is optional: the seconds of the kernel alone in this call, or None.
        Without it, the seconds of the whole call count.
        """
        ...


class Reporter(Protocol):
    """A way to run existing tests.

    `Factory(build: str)` makes one, as for an Executor; a plug-in may be either, or both.
    """

    def report(
        self, selection: Mapping[str, Any], *, iteration: int, seed: int | None
    ) -> list[dict[str, Any]]:
        """Run the selection once and return its reports (docs/executors.md has their fields).

        `selection` is {"suite", "filter", "shuffle", "stages"}, as given. The call must end within
        GONOGO_PER_SEED_DEADLINE_S seconds (in its environment), or its reports are lost.
        """
        ...


class ExecutorFailure(InfrastructureError):
    """A run that ended without outputs that can be judged.

    `verdict` goes into the result row; `log_tail` is the end of the child's log.
    """

    verdict: ClassVar[str] = "error"

    def __init__(self, message: str, log_tail: str = "") -> None:
        super().__init__(message)
        self.log_tail = log_tail


class KernelError(ExecutorFailure):
    """The kernel or its factory raised, or an output is missing or has a wrong shape or type."""


class KernelHang(ExecutorFailure):
    """The kernel did not answer within its deadline."""

    verdict = "hang"


class KernelCrash(ExecutorFailure):
    """The process of the kernel ended, or broke the protocol, while a kernel ran."""

    verdict = "crash"


class HostUnavailable(ExecutorFailure):
    """The child process could not be started: nothing was run."""


class Stopped(ExecutorFailure):
    """We ended the child: cancel or shutdown."""


def shaped_inputs(test: TestSpec, given: Mapping[str, NDArray[Any]]) -> dict[str, FloatArray]:
    """Return the inputs of `test` as executors receive them: C-contiguous float32, or int32.

    `given` has flat rows or shaped arrays.
    """
    inputs = {}
    for name in test.input_names:
        dtype = np.float32 if name in test.float_names else np.int32
        array: NDArray[Any] = np.asarray(given[name], dtype=dtype, order="C")
        inputs[name] = array.reshape(test.shape_of(name))
    return inputs


def output_shapes(
    test: TestSpec, produced: tuple[str, ...] | None = None
) -> dict[str, tuple[int, ...]]:
    """Return name and shape of every output that the build must return.

    `produced` is what the build declares (None: all outputs of the kernel).
    """
    downstream = () if produced is None else test.downstream
    names = (*test.outputs, *downstream)
    return {name: test.shape_of(name) for name in names if produced is None or name in produced}


def check_outputs(
    outputs: object, expected: Mapping[str, tuple[int, ...]]
) -> dict[str, FloatArray]:
    """Return the expected outputs of an executor in our process; others are left out.

    Raises KernelError for a missing or wrong output.
    """
    if not isinstance(outputs, Mapping):
        raise KernelError(
            f"the executor returned {type(outputs).__name__}, not a mapping of names to arrays"
        )
    checked: dict[str, FloatArray] = {}
    for name, shape in expected.items():
        if name not in outputs:
            raise KernelError(
                f"output {name} is missing; got {', '.join(sorted(map(str, outputs))) or 'nothing'}"
            )
        array = outputs[name]
        # The mean of a vector's only row is a NumPy scalar
        if not isinstance(array, np.ndarray | np.generic):
            raise KernelError(f"output {name} is a {type(array).__name__}, not a numpy array")
        if array.dtype != np.float32 or array.shape != shape:
            raise KernelError(
                f"output {name} is {array.dtype} {list(array.shape)}; "
                f"expected float32 {list(shape)}"
            )
        checked[name] = np.asarray(array, order="C")
    return checked

"""The fixture `exact_inputs`: inputs on which right kernels agree to the bit, and their check."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gonogo.exactness import ExactJudgment
    from gonogo.spec.test_spec import TestSpec


__tracebackhide__ = True
"""pytest shows the test's line, and none of ours."""


class ExactInputs(Mapping[str, Any]):
    """The tensors of one seed, by name: float32 arrays in the test's shapes, exact in its formats.

    `inputs["x"]`, or the attributes `inputs.x`, `inputs.gamma`, ...
    """

    def __init__(self, test: TestSpec, arrays: Mapping[str, NDArray[np.float32]]) -> None:
        self._test = test
        self._arrays = {name: value.reshape(test.shape_of(name)) for name, value in arrays.items()}

    def __getitem__(self, name: str) -> NDArray[np.float32]:
        return self._arrays[name]

    def __getattr__(self, name: str) -> NDArray[np.float32]:
        arrays: Mapping[str, NDArray[np.float32]] = self.__dict__.get("_arrays", {})
        if name not in arrays:
            raise AttributeError(f"there is no input {name!r}")
        return arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def judge(self, **outputs: Any) -> dict[str, ExactJudgment]:
        """Return the judgment of each output: NumPy arrays, or torch or ttnn tensors.

        Raises ValueError for an output that the kernel doesn't have, KernelOutputError for one of a
        wrong shape.
        """
        from gonogo import workloads
        from gonogo.exactness import judge_exact
        from gonogo.judging.judging import matrix
        from gonogo.public import tensors

        for name in outputs:
            if name not in self._test.outputs:
                allowed = ", ".join(self._test.outputs)
                raise ValueError(f"{self._test.kernel} has no output {name!r} (allowed: {allowed})")
        inputs = workloads.shaped(self._test, self._arrays)
        graphs = workloads.graphs_of(self._test)
        read = {name: tensors.read(value, name).values for name, value in outputs.items()}
        arrays = {
            name: matrix(self._test, name, read).reshape(graphs[0].outputs[name].shape)
            for name in outputs
        }
        return judge_exact(
            graphs, inputs, arrays, dict.fromkeys(arrays, self._test.numerics.output)
        )

    def check(self, **outputs: Any) -> None:
        """Raise AssertionError with the wrong term in words, unless all outputs are exact."""
        wrong = [
            f"{name}: {judgment.message}"
            for name, judgment in self.judge(**outputs).items()
            if judgment.wrong
        ]
        if wrong:
            raise AssertionError("\n".join(wrong))


def draw(
    seed: int, kernel: str, shape: Sequence[int], fmt: str = "bf16", **fields: Any
) -> ExactInputs:
    """Return exact inputs of a kernel.

    fmt: the format of all tensors and of stored intermediates. fields: further fields of the test
    (docs/spec.md), such as epsilon. Raises FieldError where the test can't be exact.
    """
    from gonogo.errors import FieldError
    from gonogo.judging.inputs import generate, quantise
    from gonogo.public import handover
    from gonogo.spec.test_spec import TestSpec

    handover.known_kernel(kernel)  # loads that of an installed package
    numerics = {"input": fmt, "output": fmt, "buffers": fmt} | fields.pop("numerics", {})
    data = {"kernel": kernel, "shape": list(shape), "numerics": numerics, **fields}
    try:
        test = TestSpec.parse(data | {"inputs": {"regime": "exact"}})
    except FieldError as problem:
        raise problem.with_traceback(None) from None
    return ExactInputs(test, quantise(test, generate(test, seed)))

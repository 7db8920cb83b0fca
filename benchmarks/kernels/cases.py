"""Cases: a kernel's inputs in a format, of an ordinary distribution or of one that is hard."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from benchmarks.kernels.rows import Row
from gonogo.arithmetic.evaluation import Evaluation
from gonogo.arithmetic.formats import round_to
from gonogo.graph import Graph, trace
from gonogo.judgment.judging import judge
from gonogo.judgment.verdict import Judgment
from gonogo.kernels.kernel import Kernel
from gonogo.kernels.registry import kernel_of

Arrays = Mapping[str, NDArray[Any]]
REGIMES: Final = ("usual", "offset", "hard")
EPSILON: Final = 1e-5
LARGE: Final = (64, 1024)
"""The example of most kernels, in whose place a smaller shape is judged."""
SHAPE: Final = (24, 160)
LIMIT: Final = 10.0
"""Limit of tensors whose distribution a kernel's file says: exp(11) is inf in fp16, so kernels that
store it have no right answer beyond. In fp32, results of exp stay above the subnormal numbers."""


@dataclass(frozen=True)
class Case:
    """A kernel on a shape, in a format and a regime.

    Attributes:
        parameters: those that aren't the kernel's defaults, as pairs.
        regime: "usual", what the kernel's file says, else standard normal values; "offset", the
            first tensor 4 deviations off, or 4 times as large where the file says how it is drawn
            (half as large where it is uniform there); "hard", its rows of very different size.
    """

    kernel: Kernel
    shape: tuple[int, ...]
    parameters: tuple[tuple[str, Any], ...]
    form: str
    regime: str

    @classmethod
    def of(cls, row: Row, form: str, regime: str) -> Case:
        """Return a row's case."""
        kernel = kernel_of(row.kernel)
        shape = row.shape or (SHAPE if kernel.example == LARGE else kernel.example)
        return cls(kernel, shape, tuple(row.parameters.items()), form, regime)

    def __str__(self) -> str:
        return f"{self.kernel.name} {list(self.shape)} {self.form} {self.regime}"

    def random(self) -> np.random.Generator:
        """Return numbers at random, the same for equal cases."""
        return np.random.default_rng(crc32(f"{self} {self.parameters}".encode()))

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """All arguments but the tensors."""
        known = {"epsilon": EPSILON, **self.kernel.completed(dict(self.parameters))}
        names = inspect.signature(self.kernel.reference).parameters
        return {name: value for name, value in known.items() if name in names}

    @cached_property
    def inputs(self) -> Arrays:
        """The tensors: float32 with values of the format, int32 where they are whole."""
        kernel, random = self.kernel, self.random()
        parameters = kernel.completed(dict(self.parameters))
        tensors: dict[str, NDArray[Any]] = {}
        first = next(name for name in kernel.inputs if name not in kernel.whole)
        for name in kernel.inputs:
            shape = kernel.shape_of(name, self.shape, parameters)
            if name in kernel.whole:
                bound = kernel.whole[name](self.shape, parameters)
                tensors[name] = random.integers(0, bound, shape, np.int32)
                continue
            regime = kernel.regimes.get(name, {})
            is_uniform = regime.get("regime") == "uniform"
            values = random.normal(0.0, regime.get("std", 1.0), shape)
            if is_uniform:
                values = random.uniform(regime.get("low", -1.0), regime.get("high", 1.0), shape)
            if name == first and self.regime == "offset":
                values = values * (0.5 if is_uniform else 4.0) if regime else values + 4.0
            elif name == first and self.regime == "hard":
                rows = (*shape[:1], *(1,) * (len(shape) - 1))
                values = values * np.exp(random.normal(size=rows))
            if regime:
                values = np.clip(values, -LIMIT, LIMIT)
            tensors[name] = round_to(values, self.form).astype(np.float32)
        return tensors

    @cached_property
    def graphs(self) -> list[Graph]:
        """The reference and its other ways."""
        functions = (self.kernel.reference, *self.kernel.ways)
        return [trace(function, self.inputs, **self.arguments) for function in functions]

    @cached_property
    def right(self) -> Arrays:
        """The exact outputs, in float64."""
        evaluation = Evaluation(self.graphs[0], self.inputs).run()
        return {name: evaluation.output(name) for name in self.graphs[0].outputs}

    def shaped(self, outputs: Arrays) -> Arrays:
        """Return outputs in the shapes of the reference's, which keeps reduced axes."""
        return {name: values.reshape(self.right[name].shape) for name, values in outputs.items()}

    def errors(self, outputs: Arrays) -> dict[str, float]:
        """Return the largest absolute error of each output, infinite where a value isn't finite."""
        errors = {}
        for name, values in outputs.items():
            right = self.right[name]
            is_same = (values == right) | (values == round_to(right, self.form))
            with np.errstate(invalid="ignore"):
                error = np.where(is_same & ~np.isfinite(values), 0.0, np.abs(values - right))
            errors[name] = float(np.nan_to_num(error, nan=np.inf, posinf=np.inf).max())
        return errors

    def judged(self, outputs: Arrays, formats: Mapping[str, str]) -> Judgment:
        """Judge outputs with no arithmetic named."""
        narrow = [form for form in {self.form, *formats.values()} if form in ("bf16", "fp16")]
        return judge(self.graphs, self.inputs, outputs, formats, narrow)

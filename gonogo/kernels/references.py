"""The raw references of a test's outputs, from whole arrays or again for each block of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gonogo.numerics.blocks import in_order
from gonogo.numerics.expectation import Array

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

Arrays = Mapping[str, NDArray[Any]]


class References:
    """The raw references as whole arrays."""

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        self._arrays = arrays

    def rows(self, rows: slice) -> dict[str, Array]:
        """Return some rows of the outputs that are matrices."""
        return {name: array[rows] for name, array in self._arrays.items()}

    def whole(self, name: str) -> Array:
        """Return the reference of an output that isn't compared by rows."""
        return self._arrays[name]


class RowReferences(References):
    """The raw references of a kernel whose rows depend on each other by sums only.

    They are computed when they are asked for: in float64 they are twice as large as the inputs.
    """

    def __init__(
        self,
        function: Callable[[TestSpec, Arrays], dict[str, Array]],
        test: TestSpec,
        raw: Arrays,
        step: int,
    ) -> None:
        self._function, self._test, self._raw, self._step = function, test, raw, step

    def rows(self, rows: slice) -> dict[str, Array]:
        """Return the references of these rows; sums are those of these rows alone."""
        return self._function(self._test, some_rows(self._test, self._raw, rows))

    def whole(self, name: str) -> Array:
        """Return the reference of an output that has one row, a value per row, or a sum of rows."""
        return self._wholes[name]

    @cached_property
    def _wholes(self) -> dict[str, Array]:
        """The references of all such outputs, from one pass over the rows."""
        test = self._test
        names = [name for name in test.outputs if not test.is_matrix(name) or test.rows == 1]

        def some(start: int, stop: int) -> dict[str, Array]:
            block = self.rows(slice(start, stop))
            return {name: block[name] for name in names}

        parts: dict[str, list[Array]] = {name: [] for name in names}
        for block in in_order(some, test.rows, self._step):
            for name, part in block.items():
                if parts[name] and not test.is_per_row(name):
                    parts[name] = [parts[name][0] + part]
                else:
                    parts[name].append(part)
        return {name: np.concatenate(some_parts) for name, some_parts in parts.items()}


def some_rows(test: TestSpec, arrays: Arrays, rows: slice) -> dict[str, Any]:
    """Return some rows of matrices and of values per row, and vectors whole."""
    return {
        name: array[rows] if test.is_matrix(name) or test.is_per_row(name) else array
        for name, array in arrays.items()
    }

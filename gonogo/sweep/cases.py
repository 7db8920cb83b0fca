"""The cases of a sweep: boundary shapes and parameters of a kernel, each with a regime of inputs.

They depend on the kernel, the numerics and the first seed alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from random import Random
from typing import Any

from gonogo.errors import FieldError
from gonogo.kernels.registry import KERNELS
from gonogo.reports.check_line import command
from gonogo.spec.test_spec import TestSpec
from gonogo.workloads import kernel_of, on_wormhole

TILE = 32
L1_BYTES = 1464 * 1024
"""The memory of a Wormhole's core, from its data sheet: 1,464 KiB."""
BEYOND_L1 = L1_BYTES // (TILE * 2) + 1
"""The first length at which a row of 16-bit tiles no longer fits a core's memory."""
SIZES: Sequence[int] = sorted(
    {2, 3, 7, 17, 100, 1000, BEYOND_L1}
    | {1 << power for power in range(12)}
    | {TILE * tiles + more for tiles in (1, 2, 3, 4, 8, 16, 32, 64) for more in (-1, 0, 1)}
)
"""Sizes of a dimension at which kernels break: one tile less and more, odd tails, powers of two and
their neighbors, blocks of three tiles, and what exceeds a core's memory."""
MOST_ELEMENTS = 2**17
"""Elements of a case's first tensor: a case takes well below a second."""
MOST_INSIDE = 2**21
"""Elements of a value between them, such as attention's scores."""
COMBINED = 96
"""Shapes in which all dimensions are drawn, after those in which a single one is."""
HUGE = {"fp16": 64.0}
"""Large deviations by input format, whose squares stay finite; other formats have fp32's range."""
VALUES: Mapping[type, Sequence[Any]] = {
    bool: (False, True),
    int: (1, 2, 3, 4, 7, 8, 31, 32, 33),
    float: (0.0, 0.5, 1.0, 2.0),
}
"""Values of a kernel's parameters, by the type of the default."""


@dataclass(frozen=True)
class Case:
    """One run of a sweep: a test and the seed of its inputs."""

    test: TestSpec
    seed: int

    @property
    def key(self) -> tuple[str, int]:
        """The identity of the run: equal keys give equal inputs."""
        return self.test.key, self.seed

    def command(self, kernel: str, executor: str, build: str) -> str:
        """Return the command that runs it again on a build; kernel: its name, or its file."""
        test = self.test.canonical()
        flags = [
            *(("kernel", kernel), ("executor", executor), ("build", build)),
            ("shape", ",".join(map(str, self.test.shape))),
            ("seed-start", self.seed),
            *((name, test.get(name)) for name in ("parameters", "inputs", "numerics")),
        ]
        return command("check", flags)


def regimes(input_format: str) -> list[dict[str, Any]]:
    """Return the regimes of inputs, the plainest first; {} is the kernel's own default."""
    return [
        {},
        {"regime": "offset", "offset": 100.0},
        {"regime": "constant", "value": 1.0},
        {"regime": "ramp", "low": -1.0, "high": 1.0},
        {"regime": "hot_tile", "tile": 0, "value": 100.0},
        {"regime": "normal", "std": 1e-3},
        {"regime": "normal", "std": HUGE.get(input_format, 2.0**40)},
    ]


def variants(base: TestSpec, seed: int) -> list[TestSpec]:
    """Return the tests at the boundaries of a usual one: its shape and its parameters, varied.

    First a single dimension or parameter differs, small tensors before large ones; then all
    dimensions are drawn. What the kernel refuses is left out.
    """
    one = [_resized(base.shape, axis, size) for axis in range(len(base.shape)) for size in SIZES]
    random = Random(seed)
    others = [tuple(random.choice(SIZES) for _ in base.shape) for _ in range(4 * COMBINED)]
    fitting = [shape for shape in others if prod(shape) <= MOST_ELEMENTS][:COMBINED]
    shapes = dict.fromkeys([*sorted(one, key=prod), *fitting])
    resized = [changed_test(base, shape=shape) for shape in shapes]
    changed = [
        changed_test(base, parameters=base.parameters | {name: value})
        for name, parameter in KERNELS[base.kernel].parameters.items()
        for value in VALUES.get(type(parameter.default), ())
    ]
    return list(dict.fromkeys(test for test in [base, *changed, *resized] if test is not None))


def cases(base: TestSpec, seed: int) -> Iterator[Case]:
    """Yield cases until every variant has had every regime.

    In each round each variant has one regime, another one each time: after the first round all
    shapes and all regimes have been seen. The seed grows by 1 with each round.
    """
    tests = variants(base, seed)
    inputs = regimes(base.numerics.format_of(base.input_names[0]))
    for turn in range(len(inputs)):
        for place, test in enumerate(tests, turn):
            chosen = changed_test(test, inputs=inputs[place % len(inputs)])
            if chosen is not None and _is_small(test):
                yield Case(chosen, seed + turn)


def changed_test(test: TestSpec, **fields: Any) -> TestSpec | None:
    """Return a test with other fields; None where the kernel refuses them."""
    try:
        return TestSpec.parse(test.canonical() | fields)
    except FieldError:
        return None


@cache
def _is_small(test: TestSpec) -> bool:
    """Return whether no tensor of a test, nor a value between them, is too large for a sweep."""
    tensors = (*test.input_names, *test.outputs)
    if max(prod(test.shape_of(name)) for name in tensors) > MOST_ELEMENTS:
        return False
    graph, _ = on_wormhole(test, kernel_of(test).wormhole)
    return max(prod(node.shape) for node in graph.nodes) <= MOST_INSIDE


def _resized(shape: Sequence[int], axis: int, size: int) -> tuple[int, ...]:
    """Return a shape with another size of one axis; the others shrink where it would be large."""
    sizes = [*shape]
    sizes[axis] = size
    for other in range(len(sizes)):
        if other != axis and prod(sizes) > MOST_ELEMENTS:
            sizes[other] = max(1, MOST_ELEMENTS * sizes[other] // prod(sizes))
    return tuple(sizes)

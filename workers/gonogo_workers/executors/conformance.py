"""What every executor must do, as plain functions that raise AssertionError: for our own tests and
for those of plug-ins.

    from gonogo_workers.executors.conformance import checks

    @pytest.mark.parametrize("check", checks(MyExecutor, "my-build"), ids=str)
    def test_conformance(check):
        check()

or, on a command line, `python -m gonogo_workers.executors.conformance package.module:Factory
build`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from gonogo.judging.inputs import generate, quantise
from gonogo.kernels.registry import numerics
from gonogo.spec.kernels.registry import KERNELS
from gonogo.spec.test_spec import TestSpec
from gonogo_workers.executors.base import (
    Executor,
    FloatArray,
    check_outputs,
    output_shapes,
    shaped_inputs,
)

Factory = Callable[[str], Executor]

SHAPES: tuple[tuple[int, ...], ...] = ((1, 1, 32, 64), (2, 3, 40), (1, 33), (7,))
"""Whole tiles, ragged ones, more and less than two dimensions."""
ROUGHLY = 0.1
"""Largest error of a right kernel of any format in units of the output's scale: this suite asks
whether it is that kernel at all."""
NO_BUILD = "no-such-build-4711"
LAYERNORM = ("layernorm_fw", "layernorm_bw")
"""What an executor is asked for unless it says otherwise."""


@dataclass(frozen=True)
class Check:
    """One promise of an executor; calling it raises AssertionError when it is broken."""

    name: str
    call: Callable[[], None]

    def __call__(self) -> None:
        self.call()

    def __str__(self) -> str:
        return self.name


def checks(
    factory: Factory,
    build: str,
    *,
    kernels: Sequence[str] = LAYERNORM,
    shapes: Sequence[tuple[int, ...]] = SHAPES,
    produced: tuple[str, ...] | None = None,
    right: bool = True,
    deterministic: bool = True,
    own_statistics: bool = True,
) -> list[Check]:
    """The suite for one factory and one of its builds.

    `kernels` and `shapes` are what the build is for, `produced` the outputs that it declares (None
    = all). `right=False` leaves out the comparison with the reference (a build known to be wrong),
    `deterministic=False` that of two runs (a build known to vary), `own_statistics=False` the
    backward kernel without mean and rstd (a build that must be given them).
    """
    found = [Check("an unknown build is refused", lambda: unknown_build(factory))]
    for test in _tests(kernels, shapes, own_statistics):
        case = _Case(factory, build, test, produced)
        where = f"{test.kernel} {list(test.shape)} statistics {test.numerics.statistics}"
        found.append(
            Check(
                f"outputs have names, shapes and types: {where}",
                partial(outputs_conform, case),
            )
        )
        found.append(Check(f"inputs are left alone: {where}", partial(inputs_kept, case)))
        if deterministic:
            found.append(
                Check(
                    f"the same inputs give the same bits: {where}",
                    partial(same_twice, case),
                )
            )
        if right:
            found.append(
                Check(f"it is {_named(test.kernel)}: {where}", partial(roughly_right, case))
            )
    if len(kernels) and len(shapes) > 1:
        found.append(
            Check(
                "results stay as they were returned",
                lambda: results_kept(factory, build, kernels[0], shapes, produced),
            )
        )
    return found


def _named(kernel: str) -> str:
    return "a LayerNorm" if kernel in LAYERNORM else f"the kernel {kernel}"


@dataclass(frozen=True)
class _Case:
    factory: Factory
    build: str
    test: TestSpec
    produced: tuple[str, ...] | None

    def inputs(self, seed: int = 0) -> dict[str, FloatArray]:
        return shaped_inputs(self.test, quantise(self.test, generate(self.test, seed)))

    def run(self, inputs: dict[str, FloatArray]) -> dict[str, FloatArray]:
        executor = self.factory(self.build)
        try:
            outputs = executor.run(self.test.canonical(), inputs)
            return check_outputs(outputs, output_shapes(self.test, self.produced))
        finally:
            close = getattr(executor, "close", None)
            if close is not None:
                close()


def unknown_build(factory: Factory) -> None:
    """A build that doesn't exist is an exception of the factory: later it would be a wrong
    result.
    """
    try:
        factory(NO_BUILD)
    except Exception:
        return
    raise AssertionError(f"the factory accepted the build {NO_BUILD!r}")


def outputs_conform(case: _Case) -> None:
    """Every declared output is there, float32, of its shape, without NaN for ordinary inputs."""
    outputs = case.run(case.inputs())
    for name, array in outputs.items():
        assert np.isfinite(array).all(), (
            f"{name} has {np.count_nonzero(~np.isfinite(array))} values that aren't finite"
        )


def inputs_kept(case: _Case) -> None:
    """The arrays given are not written to."""
    inputs = case.inputs()
    before = {name: array.copy() for name, array in inputs.items()}
    case.run(inputs)
    for name, array in inputs.items():
        assert array.tobytes() == before[name].tobytes(), f"the input {name} was changed"


def same_twice(case: _Case) -> None:
    """Two executors given the same inputs return the same bytes."""
    first, second = case.run(case.inputs()), case.run(case.inputs())
    for name, array in first.items():
        different = np.count_nonzero(array.view(np.uint32) != second[name].view(np.uint32))
        assert not different, f"{name} differs in {different} of {array.size} values"


def roughly_right(case: _Case) -> None:
    """The numbers are those of the kernel, within a tenth of the output's largest value."""
    given = quantise(case.test, generate(case.test, 0))
    wanted = numerics(case.test).reference(case.test, given)
    for name, array in case.run(case.inputs()).items():
        golden = np.asarray(wanted[name]).reshape(array.shape)
        scale = max(1.0, float(np.abs(golden).max()))
        worst = float(np.abs(array - golden).max())
        assert worst <= ROUGHLY * scale, (
            f"{name} is off by {worst:.3g}; the largest value is {scale:.3g}"
        )


def results_kept(
    factory: Factory,
    build: str,
    kernel: str,
    shapes: Sequence[tuple[int, ...]],
    produced: tuple[str, ...] | None,
) -> None:
    """One executor runs several shapes in turn, and what it returned first doesn't change later (no
    buffer is handed out twice).
    """
    executor = factory(build)
    kept: list[tuple[str, FloatArray, bytes]] = []
    for seed, shape in enumerate([*shapes, *shapes]):
        test = TestSpec.parse({"kernel": kernel, "shape": list(shape)})
        inputs = shaped_inputs(test, quantise(test, generate(test, seed)))
        outputs: Mapping[str, Any] = check_outputs(
            executor.run(test.canonical(), inputs), output_shapes(test, produced)
        )
        kept += [(name, array, array.tobytes()) for name, array in outputs.items()]
    for name, array, content in kept:
        assert array.tobytes() == content, (
            f"a later run changed the {name} that an earlier one had returned"
        )


def _tests(
    kernels: Sequence[str], shapes: Sequence[tuple[int, ...]], own_statistics: bool
) -> Iterator[TestSpec]:
    for kernel in kernels:
        for shape in shapes:
            yield TestSpec.parse({"kernel": kernel, "shape": list(shape)})
        if KERNELS[kernel].given_statistics and own_statistics:
            yield TestSpec.parse(
                {"kernel": kernel, "shape": list(shapes[0]), "numerics": {"statistics": "own"}}
            )


def main(arguments: Sequence[str]) -> int:
    """Run the suite for `package.module:Factory` and a build; prints a line per check; 1 when one
    fails.
    """
    if len(arguments) != 2 or ":" not in arguments[0]:
        print(
            "usage: python -m gonogo_workers.executors.conformance package.module:Factory build",
            file=sys.stderr,
        )
        return 2
    module, _, name = arguments[0].partition(":")
    factory = getattr(importlib.import_module(module), name)
    failures = 0
    for check in checks(factory, arguments[1]):
        try:
            check()
            print(f"ok    {check}")
        except Exception as problem:
            failures += 1
            print(f"FAIL  {check}: {type(problem).__name__}: {problem}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The conformance suite of executors, as plain functions that raise AssertionError.

It is for our tests and for those of plug-ins:

    from gonogo_workers.executors.conformance import checks

    @pytest.mark.parametrize("check", checks(MyExecutor, "my-build"), ids=str)
    def test_conformance(check):
        check()

or, on a command line (--help says more):

    python -m gonogo_workers.executors.conformance package.module:Factory build

It tests the kernels that the executor says it offers, in its attribute `kernels`; kernels of
installed packages, too.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from gonogo.errors import FieldError, GonogoError
from gonogo.fields import choice
from gonogo.judging.inputs import generate, quantise
from gonogo.kernels.registry import KERNELS, allow_installed, nameable
from gonogo.spec.test_spec import TestSpec
from gonogo.workloads import exact_outputs
from gonogo_workers.executors.base import (
    Executor,
    FloatArray,
    check_outputs,
    output_shapes,
    shaped_inputs,
)

Factory = Callable[[str], Executor]

SHAPES: tuple[tuple[int, ...], ...] = ((1, 1, 32, 64), (2, 3, 40), (1, 33), (7,))
"""Whole tiles, ragged tiles, and more and fewer than two dimensions."""
ROUGHLY = 0.1
"""The largest error of a right kernel of any format, in units of the output's scale.

This suite only asks whether it is that kernel at all.
"""
NO_BUILD = "no-such-build-4711"
LAYERNORM = ("layernorm_fw", "layernorm_bw")
"""The kernels that an executor must run unless it says that it offers others."""


@dataclass(frozen=True)
class Check:
    """One promise of an executor; the call raises AssertionError when it is broken."""

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
    kernels: Sequence[str] | None = None,
    shapes: Sequence[tuple[int, ...]] = SHAPES,
    produced: tuple[str, ...] | None = None,
    right: bool = True,
    deterministic: bool = True,
    own_statistics: bool = True,
) -> list[Check]:
    """Return the suite for one factory and one of its builds.

    `kernels` (None: what it says it offers) and `shapes` are what the build is for, `produced` the
    outputs that it declares (None: all). `right=False` leaves out the comparison with the reference
    (a build known to be wrong), `deterministic=False` that of two runs (a build known to vary),
    `own_statistics=False` the backward kernel without mean and rstd (a build that needs them as
    inputs). Shapes that a kernel can't have are left out.
    """
    suite = [Check("an unknown build is refused", partial(unknown_build, factory))]
    kernels = offered(factory, build) if kernels is None else tuple(kernels)
    for test in _tests(kernels, shapes, own_statistics):
        case = _Case(factory, build, test, produced)
        promises = {
            "outputs have names, shapes and types": outputs_conform,
            "inputs are left alone": inputs_unchanged,
        }
        if deterministic:
            promises["the same inputs give the same bits"] = same_bits_twice
        if right:
            named = "a LayerNorm" if test.kernel in LAYERNORM else f"the kernel {test.kernel}"
            promises[f"it is {named}"] = roughly_right
        where = f"{test.kernel} {list(test.shape)} statistics {test.numerics.statistics}"
        for name, promise in promises.items():
            suite.append(Check(f"{name}: {where}", partial(promise, case)))
    if len(kernels) and len(shapes) > 1:
        call = partial(results_unchanged, factory, build, kernels[0], shapes, produced)
        suite.append(Check("results stay as they were returned", call))
    return suite


def offered(factory: Factory, build: str) -> tuple[str, ...]:
    """Return the kernels that a build says it offers, in its attribute `kernels`.

    Without one they are those of LayerNorm. Raises FieldError for a kernel that nobody has defined
    here, and AssertionError for something else than names.
    """
    declared: Any = getattr(factory, "kernels", None)
    if declared is None:  # it may depend on the build
        executor = factory(build)
        declared = getattr(executor, "kernels", LAYERNORM)
        _close(executor)
    is_list = isinstance(declared, list | tuple) and len(declared) > 0
    assert is_list, f"kernels must be a list of names of kernels; got {declared!r}"
    allow_installed()
    for name in declared:
        if name not in KERNELS:
            choice(name, nameable(), "kernels", "no installed package has this kernel")
    return tuple(declared)


def _close(executor: Executor) -> None:
    close = getattr(executor, "close", None)
    if close is not None:
        close()


@dataclass(frozen=True)
class _Case:
    """One test of one build."""

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
            _close(executor)


def unknown_build(factory: Factory) -> None:
    """Check that the factory raises for a build that doesn't exist, before any wrong result."""
    try:
        factory(NO_BUILD)
    except Exception:
        return
    raise AssertionError(f"the factory accepted the build {NO_BUILD!r}")


def outputs_conform(case: _Case) -> None:
    """Check that every declared output has its name, type and shape.

    All values must be finite for ordinary inputs.
    """
    for name, array in case.run(case.inputs()).items():
        odd = np.count_nonzero(~np.isfinite(array))
        assert not odd, f"{name} has {odd} values that aren't finite"


def inputs_unchanged(case: _Case) -> None:
    """Check that the kernel does not write to its input arrays."""
    inputs = case.inputs()
    before = {name: array.copy() for name, array in inputs.items()}
    case.run(inputs)
    for name, array in inputs.items():
        assert array.tobytes() == before[name].tobytes(), f"the input {name} was changed"


def same_bits_twice(case: _Case) -> None:
    """Check that two executors return the same bytes for the same inputs."""
    first, second = case.run(case.inputs()), case.run(case.inputs())
    for name, array in first.items():
        different = np.count_nonzero(array.view(np.uint32) != second[name].view(np.uint32))
        assert not different, f"{name} differs in {different} of {array.size} values"


def roughly_right(case: _Case) -> None:
    """Check that the numbers are the kernel's, within a tenth of the output's largest value."""
    given = quantise(case.test, generate(case.test, 0))
    references = exact_outputs(case.test, given)
    for name, array in case.run(case.inputs()).items():
        golden = references[name].reshape(array.shape)
        scale = max(1.0, float(np.abs(golden).max()))
        worst = float(np.abs(array - golden).max())
        assert worst <= ROUGHLY * scale, (
            f"{name} is off by {worst:.3g}; the largest value is {scale:.3g}"
        )


def results_unchanged(
    factory: Factory,
    build: str,
    kernel: str,
    shapes: Sequence[tuple[int, ...]],
    produced: tuple[str, ...] | None,
) -> None:
    """Check that an array stays as it was returned while the executor runs other shapes.

    No buffer may be handed out twice.
    """
    executor = factory(build)
    returned: list[tuple[str, FloatArray, bytes]] = []
    for seed, test in enumerate(_possible(kernel, shapes) * 2):
        inputs = shaped_inputs(test, quantise(test, generate(test, seed)))
        outputs: Mapping[str, Any] = check_outputs(
            executor.run(test.canonical(), inputs), output_shapes(test, produced)
        )
        returned += [(name, array, array.tobytes()) for name, array in outputs.items()]
    for name, array, content in returned:
        assert array.tobytes() == content, (
            f"a later run changed the {name} that an earlier one had returned"
        )


def _tests(
    kernels: Sequence[str], shapes: Sequence[tuple[int, ...]], own_statistics: bool
) -> Iterator[TestSpec]:
    for kernel in kernels:
        tests = _possible(kernel, shapes)
        yield from tests
        if KERNELS[kernel].without_statistics is not None and own_statistics:
            numerics = tests[0].numerics.replace(statistics="own")
            yield tests[0].replace(numerics=numerics)


def _possible(kernel: str, shapes: Sequence[tuple[int, ...]]) -> list[TestSpec]:
    """Return a test for each shape that the kernel can have. Raises FieldError if it has none."""
    tests = []
    for shape in shapes:
        try:
            tests.append(TestSpec.parse({"kernel": kernel, "shape": list(shape)}))
        except FieldError as problem:
            if problem.field != "test.shape" or (shape == shapes[-1] and not tests):
                raise
    return tests


def _factory(module: str, name: str) -> Factory:
    """Return the factory. Raises FieldError where its module, or the name in it, isn't there."""
    try:
        factory: Factory = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as problem:
        limit = "package.module:Factory that can be imported here, or the name of an executor"
        raise FieldError("executor", f"{module}:{name}", str(problem), limit=limit) from problem
    return factory


def main(arguments: Sequence[str]) -> int:
    """Run the suite for an executor and a build, and print a line per check.

    Return 1 when a check fails, 2 when the command line or what it names is wrong.
    """
    parser = argparse.ArgumentParser(
        prog="python -m gonogo_workers.executors.conformance",
        description="Check that an executor keeps its promises: a line per check. "
        "Exit codes: 0 all hold, 1 one does not, 2 usage.",
    )
    where = "package.module:Factory, or the name by which a package offers it"
    parser.add_argument("executor", help=where)
    parser.add_argument("build", help="a build that the executor knows")
    kernels = "check this kernel; repeatable; default: those that the executor says it offers"
    parser.add_argument("--kernel", action="append", help=kernels)
    wrong = "the build is known to be wrong: don't look at numbers"
    parser.add_argument("--wrong", action="store_true", help=wrong)
    varying = "equal inputs may give other bits in the next run"
    parser.add_argument("--varying", action="store_true", help=varying)
    try:
        given = parser.parse_args(arguments)
    except SystemExit as ended:
        return int(ended.code or 0)
    allow_installed()
    try:
        module, _, factory_name = given.executor.partition(":")
        if not factory_name:
            # a build's interpreter may lack what reads our settings
            from gonogo_workers.executors import registry

            spec = registry.find(given.executor)
            sys.path[:0] = spec.paths
            module, factory_name = spec.module, spec.factory
        suite = checks(
            _factory(module, factory_name),
            given.build,
            kernels=given.kernel,
            right=not given.wrong,
            deterministic=not given.varying,
        )
    except (GonogoError, AssertionError) as problem:
        print(problem, file=sys.stderr)
        return 2
    failures = 0
    for check in suite:
        try:
            check()
            print(f"ok    {check}")
        except Exception as problem:
            failures += 1
            print(f"FAIL  {check}: {type(problem).__name__}: {problem}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

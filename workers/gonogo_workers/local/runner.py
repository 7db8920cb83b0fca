"""Runs kernels without a server: one executor with one build.

It runs in this process where that is safe, else in a kernel host.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from gonogo.errors import FieldError, GonogoError
from gonogo.judging.inputs import generate, quantise
from gonogo.spec.builds import known_build
from gonogo.spec.test_spec import TestSpec
from gonogo.workloads import check_build
from gonogo_workers.executors import registry
from gonogo_workers.executors.base import (
    FloatArray,
    KernelCrash,
    KernelError,
    KernelHang,
    check_outputs,
    output_shapes,
    shaped_inputs,
)
from gonogo_workers.executors.builds_file import ResolvedBuild
from gonogo_workers.executors.kernel_host import KernelHost
from gonogo_workers.local.child import LocalChild, Patience, resolved_here

NOT_HERE = frozenset({"hang", "crash"})
"""The emulator's builds that would end or block this process: they get a kernel host."""
REFUSALS = ("ValueError:", "LookupError:", "KeyError:", "gonogo.errors.FieldError:")
"""The exceptions with which a factory refuses an unknown build (docs/executors.md).

With any other exception its machine is at fault, not the caller.
"""


class LocalRunner(LocalChild):
    """Runs the kernels of one build, seed after seed."""

    def __init__(
        self, resolved: ResolvedBuild, build: str, *, patience: Patience, isolated: bool
    ) -> None:
        """Start the child unless the executor runs in this process.

        Raises FieldError when the executor doesn't know the build, KernelError when its factory
        raises for another reason, HostUnavailable when no child can be started.
        """
        super().__init__(resolved, build, patience)
        self._inside: Any = None
        self._before: tuple[TestSpec, ...] = ()
        self._before_seed = 0
        self.arithmetic, self.produced = resolved.arithmetic, resolved.produced
        self.on_wormhole = resolved.executor.on_wormhole
        if isolated:
            self._open()
        else:
            from gonogo_workers.executors.emulator_executor import EmulatorExecutor

            self._inside = EmulatorExecutor(build)

    @property
    def host_run(self) -> str | None:
        """The id of the child process that runs the kernels; None in this process."""
        return self._host.host_run if self._host else None

    def precede(self, before: Sequence[TestSpec], seed: int) -> None:
        """Run these tests, a job's context, first on this seed in every fresh process."""
        self._before, self._before_seed = tuple(before), seed

    def run(
        self, test: TestSpec, given: Mapping[str, NDArray[Any]], *, seed: int = 0
    ) -> dict[str, FloatArray]:
        """Return the outputs for one seed's quantized inputs (rows flat or shaped).

        After a hang or a crash the next run gets a fresh child. Raises FieldError for a build that
        doesn't belong to the test's kernel, KernelError, KernelHang or KernelCrash.
        """
        known = known_build(self.build, self.resolved.executor.name)
        if known is not None:
            check_build(replace(known, outputs=self.produced), test)
        if not self.position:
            seed_before = self._before_seed
            for earlier in self._before:
                # A failure is part of the context; the death of the child is not
                with contextlib.suppress(KernelError):
                    inputs = quantise(earlier, generate(earlier, seed_before))
                    self._run(earlier, inputs, seed_before)
        return self._run(test, given, seed)

    def _run(
        self, test: TestSpec, given: Mapping[str, NDArray[Any]], seed: int
    ) -> dict[str, FloatArray]:
        host = None if self._inside is not None else self._host or self._open()
        position, self.position = self.position, self.position + 1
        if host is None:
            inputs, expected = shaped_inputs(test, given), output_shapes(test, self.produced)
            try:
                outputs = self._inside.run_placed(
                    test.canonical(), inputs, seed=seed, position=position
                )
            except GonogoError:
                raise
            except Exception as problem:
                raise KernelError(f"{type(problem).__name__}: {problem}") from problem
            return check_outputs(outputs, expected)
        executor = self.resolved.executor.name
        limit_s = self.patience.limit_s(executor, test.elements, is_first=not position)
        try:
            with self.patience.telling(f"seed {seed} of build {self.build}", limit_s):
                return host.run(test, given, seed, self.produced, limit_s)
        except (KernelHang, KernelCrash):
            self.close(kill=True)
            raise

    def _open(self) -> KernelHost:
        try:
            return super()._open()
        except KernelError as problem:
            executor = self.resolved.executor.name
            if str(problem).startswith(REFUSALS):
                reason = f"executor {executor} refuses it: {problem}"
                raise FieldError("build", self.build, reason) from problem
            words = f"executor {executor}, build {self.build!r}: {problem}"
            raise KernelError(words, problem.log_tail) from problem


def load(
    executor: str,
    build: str,
    *,
    deadline_s: float | None = None,
    isolated: bool = False,
    tell: Callable[[str], None] | None = None,
) -> LocalRunner:
    """Return a runner of `build`, for use in a `with` statement.

    `with load(...) as runner: outputs = runner.run(test, given)`. The emulator runs in this
    process, except for its builds that hang or crash; plug-ins run in a kernel host. `isolated`
    forces a child process; `tell` gets a sentence about a run of it that takes long. Raises
    FieldError for an unknown executor or build, and as the runner does.
    """
    resolved, patience = resolved_here(executor, build, deadline_s, tell)
    here = (
        executor == registry.EMULATOR
        and build not in NOT_HERE
        and not resolved.environment
        and resolved.executor.python is None
    )
    return LocalRunner(resolved, build, patience=patience, isolated=isolated or not here)

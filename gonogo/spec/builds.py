"""Builds: the software under test, their order, their arithmetic and their outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Annotated, Any

from pydantic import Field

from gonogo import fields
from gonogo.errors import FieldError
from gonogo.kernels.kernel import PUBLIC_BUGS
from gonogo.kernels.registry import KERNELS, emulated
from gonogo.spec import arithmetic_names
from gonogo.spec.executors import EMULATOR as EMULATOR
from gonogo.spec.executors import EXECUTORS
from gonogo.spec.validation import Model

MAX_NAME = 200
FAULT = "/"
"""In the name of a build that has one fault of gonogo.faults.table, in the place of its id's colon:
"missing/gamma@y" has the fault missing:gamma@y."""


@dataclass(frozen=True)
class Build:
    """A build, such as a tt-metal commit, a ttnn version, a container image or an emulated defect.

    Nothing in it is executable: the worker host's builds file defines what a name means
    (interpreter, environment, command). Builds of one `branch` are ordered by `sequence`.
    """

    name: str
    executor: str
    branch: str = "default"
    sequence: int = 0
    commit: str | None = None
    arithmetic: str | None = None
    """The arithmetic of its kernels, which alone may explain their outputs; None: it is found."""
    outputs: tuple[str, ...] | None = None
    """The outputs it produces; None = all. Outputs that it doesn't declare are `not produced`; a
    declared one that is missing is an `error`."""
    author: str | None = field(default=None, compare=False)
    """The author of its commit; two that differ in nothing else are one build."""

    @property
    def order(self) -> tuple[str, int, str]:
        """The sort key: branch, then sequence; the name breaks ties."""
        return (self.branch, self.sequence, self.name)

    def produces(self, output: str) -> bool:
        """Return whether the build is meant to produce this output."""
        return self.outputs is None or output in self.outputs


class DeclaredBuild(Model):
    """The content of a build, as it is registered, or declared on a worker's host."""

    executor: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=64)
    arithmetic: str | None = Field(
        None,
        max_length=arithmetic_names.MAX_CHARS,
        description="Arithmetic of its kernels, which alone may explain their outputs; null: it is"
        " found. Allowed: " + arithmetic_names.ALLOWED,
    )
    outputs: list[Annotated[str, Field(pattern=r"\S", max_length=MAX_NAME)]] | None = Field(
        None,
        min_length=1,
        max_length=16,
        description="Outputs that it produces; null: all outputs of the kernel",
    )

    def _normalize(self) -> None:
        outputs = None if self.outputs is None else sorted(set(self.outputs))
        arithmetic = arithmetic_names.canonical(self.arithmetic)
        self.__dict__.update(arithmetic=arithmetic, outputs=outputs)

    def named(self, name: str, **others: Any) -> Build:
        """Return the build with its name, and its place on a branch if given."""
        outputs = None if self.outputs is None else tuple(self.outputs)
        return Build(name, self.executor, arithmetic=self.arithmetic, outputs=outputs, **others)


def own_builds(executor: str | None = None) -> Mapping[str, Build]:
    """Return name -> build for the builds that need no entry in a builds file.

    The emulator's are those of all kernels, in the order of registration, `correct` first.
    executor: None means all executors.
    """
    if executor is None:
        return {name: build for known in EXECUTORS for name, build in own_builds(known).items()}
    return _own_builds(executor, emulated())


@cache
def _own_builds(executor: str, emulated_names: tuple[str, ...]) -> Mapping[str, Build]:
    if executor == EMULATOR:
        return {
            name: Build(name, EMULATOR, EMULATOR, sequence, arithmetic=arithmetic_names.TT_TRAIN)
            for sequence, name in enumerate(emulated_names)
        }
    defined = EXECUTORS[executor].builds if executor in EXECUTORS else ()
    return {
        build.name: Build(build.name, executor, executor, sequence, outputs=build.outputs)
        for sequence, build in enumerate(defined)
    }


def emulator_build(name: str) -> Build:
    """Return the emulator's build of that name. Raises FieldError with the list of names."""
    builds = own_builds(EMULATOR)
    known = known_build(name, EMULATOR)
    return known or builds[fields.choice(name, builds, "build", "unknown build")]


def known_build(name: str, executor: str | None = None) -> Build | None:
    """Return the build of that name that we define ourselves; None if there is none.

    The emulator has one for each fault of a kernel (gonogo.workloads.check_build checks its name)
    and for public bugs.
    """
    known = own_builds(executor)
    is_unlisted = FAULT in name or any(name in bugs for bugs in PUBLIC_BUGS.values())
    if executor == EMULATOR and name not in known and is_unlisted:
        return replace(known["correct"], name=name, sequence=len(known))
    return known.get(name)


def fits_kernel(build: Build, kernel: str) -> bool:
    """Return whether a test of the kernel can say anything about the build.

    An emulated build must be one of the kernel's: any other would run as `correct`, and its green
    would say nothing. A build that declares its outputs must produce one
    of the kernel's.
    """
    if build.executor == EMULATOR:
        known = KERNELS[kernel]
        return FAULT in build.name or build.name in (*known.emulated_builds, *known.public_bugs)
    return any(build.produces(output) for output in KERNELS[kernel].outputs)


def check_kernel(build: Build, kernel: str, path: str = "build") -> None:
    """Raise FieldError for a build that doesn't belong to the kernel, naming those that do."""
    if fits_kernel(build, kernel):
        return
    if build.executor != EMULATOR:
        reason = f"produces no output of {kernel} ({', '.join(KERNELS[kernel].outputs)})"
        limit = "a build with one of them; this one has " + ", ".join(build.outputs or ())
        raise FieldError(path, build.name, reason, limit=limit)
    others = [name for name in KERNELS if fits_kernel(build, name)]
    reason = f"is not a build of {kernel}, only of {', '.join(others)}; it would run as `correct`"
    fields.choice(build.name, KERNELS[kernel].emulated_builds, path, reason)

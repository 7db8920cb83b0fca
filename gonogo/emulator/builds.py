"""The builds of each kernel: those of its list, of public reports, and the faults of its graph."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from gonogo.emulator.build import Build, of_any
from gonogo.emulator.norms import KINDS, Kind, builds_of_norm
from gonogo.emulator.public_bugs import PUBLIC_BUGS, PublicBug
from gonogo.kernels.kernel import sentence_of
from gonogo.kernels.registry import KERNELS
from gonogo.workloads import fault_names, fault_of

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec


def kind_of(kernel: str) -> Kind:
    """Return the values of a kernel that builds make wrong; others than norms name none."""
    return KINDS.get(kernel) or Kind(KERNELS[kernel].outputs, "", "", "")


OTHER_PASS = {"layernorm_fw": "layernorm_bw", "layernorm_bw": "layernorm_fw"}
"""The passes of a kernel that have one list of builds."""


@cache
def builds_of(kernel: str) -> Mapping[str, Build]:
    """Return the builds of a kernel that have names of their own, in the order of its list.

    A build of the other pass is the right kernel here. See build_of for others.
    """
    outputs, mistakes = KERNELS[kernel].outputs, KERNELS[kernel].mistakes
    known = {
        name: Build(name, f"{sentence_of(name, wrong)}.", outputs, way=wrong)
        for name, wrong in mistakes.items()
    }
    known |= of_any(outputs)
    if kernel in KINDS:
        others = builds_of_norm(OTHER_PASS[kernel]) if kernel in OTHER_PASS else {}
        known |= {
            name: Build(name, build.sentence, build.outputs, is_wrong=False)
            for name, build in others.items()
        } | builds_of_norm(kernel)
    known |= {bug.name: _of_report(bug) for bug in PUBLIC_BUGS.values() if bug.kernel == kernel}
    names = (*KERNELS[kernel].listed_builds, *KERNELS[kernel].public_bugs)
    return {name: known.get(name) or _of_fault(name, outputs) for name in names}


def build_of(test: TestSpec, name: str) -> Build:
    """Return a build of a test's kernel: one of its list, or the fault of that name.

    "missing/gamma@y" has the fault missing:gamma@y of gonogo.faults.table. Raises FieldError.
    """
    known = builds_of(test.kernel).get(name)
    if known is None:
        fault_of(test, name)
    return known or _of_fault(name, test.outputs)


def has_build(test: TestSpec, name: str) -> bool:
    """Return whether a test's kernel has a build."""
    return name in builds_of(test.kernel) or name in fault_names(test)


def _of_fault(name: str, outputs: tuple[str, ...]) -> Build:
    return Build(name, f"The fault {name} of its reference.", outputs, is_fault=True)


def _of_report(bug: PublicBug) -> Build:
    sentence, outputs = f"{bug.sentence} {bug.source}", KERNELS[bug.kernel].outputs
    return Build(bug.name, sentence, outputs, bug.edits, narrow_sums=bug.narrow_sums)

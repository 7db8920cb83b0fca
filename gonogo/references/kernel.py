"""A kernel: its reference, and the other ways in which implementations compute the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gonogo.references.programs import PROGRAMS, ProgramOf
from gonogo.references.wormhole import GENERIC, Dataflow

Function = Callable[..., Mapping[str, Any]]
"""A NumPy function of a kernel's inputs and parameters that returns its outputs by name."""


@dataclass(frozen=True)
class Kernel:
    """A kernel, as one file of this folder describes it.

    Attributes:
        name: the name in tests.
        reference: the function whose result is right. Its docstring states the formula.
        ways: functions of the same arguments that are equal in exact arithmetic, the most usual
            first: what an implementation may compute in their place.
        wormhole: how a Wormhole computes it.
        programs: those of known implementations by name, which a build may declare. They are the
            reference's: each is a function of its graph and the format of its tensors.
    """

    name: str
    reference: Function
    ways: tuple[Function, ...] = ()
    wormhole: Dataflow = GENERIC
    programs: Mapping[str, ProgramOf] = field(default_factory=PROGRAMS.copy)

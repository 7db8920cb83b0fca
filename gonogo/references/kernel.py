"""A kernel: its reference, and the other ways in which implementations compute the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gonogo.arithmetic.program import Program

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
        programs: programs of known implementations by name, which a build may declare.
    """

    name: str
    reference: Function
    ways: tuple[Function, ...] = ()
    programs: Mapping[str, Program] = field(default_factory=dict)

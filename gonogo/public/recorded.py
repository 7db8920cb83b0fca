"""What one comparison of a test came to, and the hooks of those who hear of it or take its arrays:
the pytest plug-in (gonogo_pytest).

Standard library only; runs in other people's interpreters (Python 3.10).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

HOLLOW, RED_BUT_RIGHT = "pass_by_tolerance", "fail_by_tolerance"


@dataclass
class Comparison:
    """One call of gonogo.compare; plain JSON types all through."""

    verdict: str = "not_judged"
    explanation: str = "not_judged"
    within: bool = True
    """Whether the test's own gate holds: green."""
    name: str | None = None
    spec: dict[str, Any] | None = None
    """The canonical test, its tolerance included, where the kernel is known and its numbers were
    judged."""
    tolerance: dict[str, float] = field(default_factory=dict)
    """The gate, where there is no spec."""
    arithmetic: str | None = None
    outputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Output -> statistics."""
    words: str = ""
    """The diagnosis, or why it is not judged."""
    problem: str = ""
    """Why arrays that should be judged could not be."""

    @property
    def hollow(self) -> bool:
        """Green, and rounding doesn't explain the error."""
        return self.within and self.explanation == "unexplained"

    def to_json(self) -> dict[str, Any]:
        """As an entry of `comparisons` in GoNoGo's own lines (docs/imports.md); verdicts are made
        from the numbers there.
        """
        return {
            "name": self.name,
            "test": self.spec,
            "tolerance": None if self.spec is not None else self.tolerance or None,
            "arithmetic": self.arithmetic,
            "outputs": self.outputs,
            "words": self.words,
            "problem": self.problem,
        }


@dataclass(frozen=True)
class Arrays:
    """The arrays of one run of a kernel, for someone who judges them later."""

    fields: dict[str, Any]
    """The test's JSON."""
    tensors: dict[str, Any]
    """Inputs and outputs by name, NumPy arrays of float32."""
    raw: dict[str, Any]
    """Unquantised inputs by name."""
    name: str | None
    arithmetic: str | None


def factor(value: float) -> str:
    """Return how many times something is, for people: three digits; beyond ten million it doesn't
    matter.
    """
    if value >= 1e7:
        return "over 10 million"
    short = float(f"{value:.3g}")
    return f"{short:,.0f}" if short >= 1000 else f"{short:g}"


Listener = Callable[[Comparison], None]
Taker = Callable[[Arrays], None]
_listeners: list[Listener] = []
_takers: list[Taker] = []


def listen(listener: Listener) -> Callable[[], None]:
    """Hear of every comparison of this process; returns what ends it."""
    _listeners.append(listener)
    return lambda: _listeners.remove(listener)


def tell(comparison: Comparison) -> Comparison:
    """Let everyone hear of it."""
    for listener in _listeners:
        listener(comparison)
    return comparison


def take(taker: Taker) -> Callable[[], None]:
    """Have the arrays of every comparison of this process, in the place of a judgement on the spot;
    returns what ends it.
    """
    _takers.append(taker)
    return lambda: _takers.remove(taker)


def handed_over(arrays: Arrays) -> bool:
    """Give them to who takes them last; False where nobody does."""
    if not _takers:
        return False
    _takers[-1](arrays)
    return True

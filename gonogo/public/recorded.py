"""The record of one comparison, and hooks to receive comparisons or their arrays.

The plug-in gonogo.pytest_plugin uses the hooks. Standard library only, because this module runs
in other people's interpreters (Python 3.10).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

HOLLOW, FALSE_ALARM, SUSPECT = "pass_by_tolerance", "fail_by_tolerance", "suspect"


@dataclass
class Comparison:
    """The record of one call of gonogo.compare, in plain JSON types."""

    verdict: str = "not_judged"
    explanation: str = "not_judged"
    within: bool = True
    """True if the test's own gate holds: green."""
    name: str | None = None
    spec: dict[str, Any] | None = None
    """The canonical test with its tolerance, if a known kernel was judged."""
    tolerance: dict[str, float] = field(default_factory=dict)
    """The gate, if there is no spec."""
    arithmetic: str | None = None
    outputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Output -> its verdict and explanation, if it was judged, and its statistics."""
    words: str = ""
    """The diagnosis, or the reason why it is not judged."""
    problem: str = ""
    """The reason why arrays that should be judged could not be."""

    @property
    def hollow(self) -> bool:
        """Return whether it is green, and rounding doesn't explain the error."""
        return self.within and self.explanation == "unexplained"

    @property
    def weakness(self) -> str:
        """Return why a green comparison says nothing (gonogo.capture.weaknesses); "" if it does."""
        return next((str(of["weakness"]) for of in self.outputs.values() if "weakness" in of), "")

    def to_json(self) -> dict[str, Any]:
        """Return it as an entry of `comparisons` in GoNoGo's own lines (docs/imports.md).

        Outputs have their verdicts and explanations among their statistics, where they were judged.
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
    """The arrays of one run of a kernel, to be judged later."""

    fields: dict[str, Any]
    """The test's JSON."""
    tensors: dict[str, Any]
    """Inputs and outputs by name, NumPy arrays of float32."""
    raw: dict[str, Any]
    """Unquantized inputs by name."""
    name: str | None
    arithmetic: str | None


def factor(value: float) -> str:
    """Return a factor for display, with three digits; above ten million without digits."""
    if value >= 1e7:
        return "over 10 million"
    short = float(f"{value:.3g}")
    return f"{short:,.0f}" if short >= 1000 else f"{short:g}"


Listener = Callable[[Comparison], None]
Taker = Callable[[Arrays], None]
_listeners: list[Listener] = []
_takers: list[Taker] = []


def listen(listener: Listener) -> Callable[[], None]:
    """Call `listener` with every comparison of this process; return a function that stops it."""
    _listeners.append(listener)
    return lambda: _listeners.remove(listener)


def publish(comparison: Comparison) -> Comparison:
    """Send a comparison to all listeners."""
    for listener in _listeners:
        listener(comparison)
    return comparison


def take(taker: Taker) -> Callable[[], None]:
    """Send the arrays of every comparison of this process to `taker`, which judges them later.

    They are not judged here. Returns a function that stops it. The last taker gets the arrays.
    """
    _takers.append(taker)
    return lambda: _takers.remove(taker)


def handed_over(arrays: Arrays) -> bool:
    """Send the arrays to the last taker, and return whether there is one."""
    if not _takers:
        return False
    _takers[-1](arrays)
    return True

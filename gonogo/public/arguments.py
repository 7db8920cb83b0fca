"""Checks of what people pass to the public functions.

A refusal names the argument, what is allowed, and the value. Only the standard library is loaded,
because this package is copied into the interpreters of other people's builds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__tracebackhide__ = True
"""pytest shows the test's line, and none of ours."""

MAX_VALUE = 80
"""Characters of a value that are shown."""


def refused(name: str, value: Any, reason: str, allowed: str) -> TypeError:
    """Return the error for an argument of a wrong type."""
    shown = " ".join(repr(value).split())
    if len(shown) > MAX_VALUE:
        shown = f"{shown[:MAX_VALUE]}..."
    return TypeError(f"{name}: {reason} (allowed: {allowed}); got {shown}")


def check_numbers(**given: Any) -> None:
    """Raise TypeError for an argument that is neither None nor a number.

    A NumPy scalar and a tensor of one element are numbers. Ranges are checked elsewhere.
    """
    for name, value in given.items():
        if value is None:
            continue
        is_number = hasattr(value, "__float__") and type(value).__name__ not in ("bool", "bool_")
        try:
            is_number = is_number and float(value) is not None
        except (TypeError, ValueError, RuntimeError):  # an array of several elements
            is_number = False
        except OverflowError:
            pass
        if not is_number:
            raise refused(name, value, "must be a number", "a number such as 1e-3, or None")


def check_switches(**given: Any) -> None:
    """Raise TypeError for an argument that is neither true nor false."""
    for name, value in given.items():
        if type(value).__name__ not in ("bool", "bool_", "int"):
            raise refused(name, value, "must be true or false", "True, False")


def check_texts(**given: Any) -> None:
    """Raise TypeError for an argument that is neither None nor text."""
    for name, value in given.items():
        if value is not None and not isinstance(value, str):
            raise refused(name, value, "must be text", f"such as {EXAMPLES[name]}, or None")


def check_mappings(**given: Any) -> None:
    """Raise TypeError for an argument that is neither None nor maps names to values."""
    for name, value in given.items():
        if value is None:
            continue
        if not isinstance(value, Mapping):
            raise refused(name, value, "must map names to values", f"such as {EXAMPLES[name]}")
        for key in value:
            if not isinstance(key, str):
                raise refused(name, key, "has a name that is no text", f"such as {EXAMPLES[name]}")


EXAMPLES = {
    "inputs": '{"x": x, "gamma": gamma}',
    "raw": '{"x": x, "gamma": gamma}',
    "outputs": '{"y": y}',
    "tolerance": '{"rtol": 1e-3, "atol": 0.5}',
    "numerics": '{"input": "bf16", "output": "fp32"}',
    "output": "'y'",
    "arithmetic": "'tt-train'",
    "parameters": '{"num_groups": 8}',
}

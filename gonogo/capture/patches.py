"""Replace comparison functions wherever modules have them, and restore them."""

from __future__ import annotations

import functools
import importlib
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

NAMES = ("assert_with_pcc", "comp_pcc", "comp_allclose", "assert_allclose", "assert_close")
"""The functions that are replaced, in any module, besides torch.allclose."""
Function = Callable[..., Any]
Observer = Callable[[Function, tuple[Any, ...], dict[str, Any], Any], None]
"""Gets a call's function, arguments and result (of a red one, the AssertionError); never raises."""

__tracebackhide__ = True
"""pytest shows the test's line, and none of ours."""


class Patches:
    """The replaced functions of this process.

    They are recognized by `__name__`, whatever a module calls them, so `from numpy.testing import
    assert_allclose as same` is replaced too. Methods, default arguments and names inside functions
    stay as they are.
    """

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._calls = threading.local()
        self._replacements: dict[int, tuple[Function, Function]] = {}
        self._seen: set[tuple[str, int]] = set()
        self._count = 0
        self._places: list[tuple[dict[str, Any], str, Function, Function]] = []

    def apply(self) -> None:
        """Replace the functions in all modules that were imported since the last call."""
        if len(sys.modules) == self._count:
            return
        if "numpy" in sys.modules:
            with suppress(Exception):  # a stub of NumPy
                importlib.import_module("numpy.testing")  # else it loads at its first use: a test's
        modules = {(name, id(module)): module for name, module in list(sys.modules.items())}
        known = len(self._replacements)
        self._replace_in(module for key, module in modules.items() if key not in self._seen)
        if known and len(self._replacements) > known:  # an earlier module may have a new one, too
            self._replace_in(modules.values())
        self._seen |= modules.keys()
        self._count = len(sys.modules)

    def restore(self) -> None:
        """Put the originals back, but not over what a test has put there since."""
        for namespace, key, original, replacement in self._places:
            if namespace.get(key) is replacement:
                namespace[key] = original
        self._places.clear()
        self._seen.clear()
        self._count = 0

    def _replace_in(self, modules: Iterable[ModuleType]) -> None:
        for module in modules:
            if not issubclass(type(module), ModuleType):
                continue
            namespace = object.__getattribute__(module, "__dict__")  # wakes no lazy module
            for key, value in list(namespace.items()):
                if _is_wanted(value):
                    replacement = self._replacement_of(value)
                    namespace[key] = replacement
                    self._places.append((namespace, key, value, replacement))

    def _replacement_of(self, function: Function) -> Function:
        """Return the function that calls the original and shows the call to the observer.

        Calls inside a call are not shown.
        """
        if id(function) in self._replacements:
            return self._replacements[id(function)][1]
        calls, observer = self._calls, self._observer

        @functools.wraps(function)
        def captured(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if getattr(calls, "are_open", False):
                return function(*args, **kwargs)
            calls.are_open = True
            try:
                result = function(*args, **kwargs)
                observer(function, args, kwargs, result)
            except AssertionError as failure:
                observer(function, args, kwargs, failure)
                raise
            finally:
                calls.are_open = False
            return result

        captured.__dict__["__gonogo__"] = True
        self._replacements[id(function)] = function, captured
        scripts = sys.modules.get("torch.jit._builtins")
        if scripts is not None and type(function) is BuiltinFunctionType:
            with suppress(AttributeError):  # what torch.jit.script compiles may call it
                scripts._register_builtin(captured, scripts._find_builtin(function))
        return captured


def _is_wanted(value: object) -> bool:
    if type(value) is BuiltinFunctionType:
        torch = sys.modules.get("torch")
        return value.__name__ == "allclose" and value is getattr(torch, "allclose", None)
    return (
        type(value) is FunctionType
        and value.__name__ in NAMES
        and not hasattr(value, "__gonogo__")
        and not hasattr(value, "__deprecated__")  # it warns of its caller: of us
        and not str(value.__module__).startswith("gonogo.")  # gonogo.compare records itself
    )

"""The rooms of the service: a folder per noun, whose modules are found by their names."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from types import ModuleType

SERVICE = "gonogo_service"


def modules(name: str) -> list[ModuleType]:
    """Import the module of this name of each room that has one, such as `model`."""
    rooms = [f"{SERVICE}.{room.name}" for room in iter_modules(import_module(SERVICE).__path__)]
    return [
        import_module(f"{room}.{name}")
        for room in rooms
        if (spec := find_spec(room)) is not None
        and spec.submodule_search_locations is not None
        and find_spec(f"{room}.{name}") is not None
    ]

"""`gonogo headers`: where the C++ header is with which GoogleTest programs hand over arrays."""

from __future__ import annotations

from importlib.util import find_spec


def headers() -> None:
    """Print the folder of gonogo_dump.hpp, for a compiler: g++ -I"$(gonogo headers)" ..."""
    spec = find_spec("gonogo_workers")  # not imported: its package has nothing to say about this
    folders = (spec and spec.submodule_search_locations) or ()
    for folder in folders:
        print(f"{folder}/include")

"""Print the modules, the largest folder and a circle of imports of each package.

`python -m tests.checks.structure`. Imports for types and inside functions count. Exits 1 where
there is a circle, or a folder with more than MAX_MODULES modules.
"""

from __future__ import annotations

import sys
from collections import Counter
from graphlib import CycleError, TopologicalSorter

from grimp import ImportGraph, build_graph

PACKAGES = (
    "gonogo",
    "gonogo_workers",
    "gonogo_service",
    "gonogo_dashboards",
    "gonogo_migrations",
)
MAX_MODULES = 25
"""Modules in one folder, `__init__.py` not counted."""


def is_sound(graph: ImportGraph, package: str) -> bool:
    """Print the figures of a package; return whether they are within the limits."""
    modules = {name for name in graph.modules if name == package or name.startswith(f"{package}.")}
    packages = {name.rpartition(".")[0] for name in modules}
    folders = Counter(name.rpartition(".")[0] for name in modules - packages if "." in name)
    folder, count = max(folders.items(), key=lambda item: (item[1], item[0]), default=(package, 0))
    print(f"{package:20} {len(modules):4} modules, largest folder: {folder} ({count})")
    imports = {name: graph.find_modules_directly_imported_by(name) & modules for name in modules}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as problem:
        print(f"circle in {package}: {' <- '.join(problem.args[1])}")
        return False
    return count <= MAX_MODULES


def main() -> int:
    """Print all packages; return the exit code."""
    graph = build_graph(*PACKAGES, cache_dir=None)
    sound = [is_sound(graph, package) for package in PACKAGES]  # each prints its line
    return 0 if all(sound) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Count modules and imports of each package, so that the layout's figures can be measured again.

`python -m tests.checks.structure` prints, for each package: its modules, the largest folder, the
imports between its sub-packages (each pair counted once), and the circles among its modules.
Imports under `if TYPE_CHECKING` and inside functions count. Exits 1 where there is a circle, or a
folder with more than MAX_MODULES modules.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Structure:
    """The figures of one package."""

    package: str
    modules: int
    largest_folder: str
    largest_folder_modules: int
    arrows: int
    """Pairs (sub-package, sub-package) with an import from the first to the second; a module beside
    the sub-packages counts as one."""
    circles: tuple[tuple[str, ...], ...]
    """Groups of modules that import each other in a circle."""


def structure(graph: ImportGraph, package: str) -> Structure:
    """Return the figures of `package`, one of the graph's root packages."""
    modules = {name for name in graph.modules if name == package or name.startswith(f"{package}.")}
    imports = {
        name: graph.find_modules_directly_imported_by(name) & modules for name in sorted(modules)
    }
    packages = {name.rpartition(".")[0] for name in modules}
    folders = Counter(name.rpartition(".")[0] for name in modules - packages if "." in name)
    folder, count = max(folders.items(), key=lambda item: (item[1], item[0]), default=(package, 0))
    arrows = {
        (_part(importer), _part(imported))
        for importer, all_imported in imports.items()
        for imported in all_imported
        if _part(importer) != _part(imported)
    }
    return Structure(package, len(modules), folder, count, len(arrows), tuple(circles(imports)))


def circles(imports: Mapping[str, Set[str]]) -> Iterable[tuple[str, ...]]:
    """Yield the strongly connected components with more than one module (Tarjan, 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    components: list[tuple[str, ...]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for imported in sorted(imports.get(name, ())):
            if imported not in index:
                visit(imported)
                low[name] = min(low[name], low[imported])
            elif imported in stack:
                low[name] = min(low[name], index[imported])
        if low[name] == index[name]:
            start = stack.index(name)
            component = tuple(sorted(stack[start:]))
            del stack[start:]
            if len(component) > 1:
                components.append(component)

    sys.setrecursionlimit(max(sys.getrecursionlimit(), 10 * len(imports) + 1000))
    for name in sorted(imports):
        if name not in index:
            visit(name)
    return components


def _part(module: str) -> str:
    """The sub-package of a module: the part of its name behind the package's."""
    return module.split(".")[1] if "." in module else ""


def main() -> int:
    """Print the table; return the exit code."""
    graph = build_graph(*PACKAGES, cache_dir=None)
    structures = [structure(graph, package) for package in PACKAGES]
    print(
        f"{'package':20} {'modules':>7} {'imports among parts':>19} {'circles':>7}  largest folder"
    )
    for package in structures:
        largest = f"{package.largest_folder} ({package.largest_folder_modules})"
        figures = f"{package.modules:7} {package.arrows:19} {len(package.circles):7}"
        print(f"{package.package:20} {figures}  {largest}")
    for package in structures:
        for circle in package.circles:
            print(f"circle in {package.package}: {', '.join(circle)}")
    failed = any(
        package.circles or package.largest_folder_modules > MAX_MODULES for package in structures
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

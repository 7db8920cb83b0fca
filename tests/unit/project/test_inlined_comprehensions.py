"""Python 3.12 inlines comprehensions, and mistakes a global for another one's variable."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
INLINED = (ast.ListComp, ast.SetComp, ast.DictComp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def mistaken(source: str) -> list[tuple[int, str]]:
    """Return lines and names that raise UnboundLocalError in Python 3.12.

    A comprehension reads a name of the module that is another comprehension's variable in the
    same function.
    """
    rows = []
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, FUNCTIONS):
            defined = {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}
            reads: dict[str, set[int]] = {}
            variables: set[str] = set()
            for node in function.body:
                for name, line in _visit(node, frozenset(), False, defined, variables):
                    reads.setdefault(name, set()).add(line)
            for name in (reads.keys() & variables) - defined:
                rows += [(line, name) for line in sorted(reads[name])]
    return sorted(rows)


def _visit(
    node: ast.AST, bound: frozenset[str], inside: bool, defined: set[str], variables: set[str]
) -> Iterator[tuple[str, int]]:
    """Yield what comprehensions read and don't bind; collect names of the function and of them."""
    if isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Lambda)):
        defined |= {node.name} if hasattr(node, "name") else set()
        return
    if isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Store) and not inside:
            defined.add(node.id)
        elif isinstance(node.ctx, ast.Load) and inside and node.id not in bound:
            yield node.id, node.lineno
        return
    if isinstance(node, (*INLINED, ast.GeneratorExp)):
        targets = {
            name.id
            for generator in node.generators
            for name in ast.walk(generator.target)
            if isinstance(name, ast.Name)
        }
        bound |= targets
        if isinstance(node, INLINED):
            variables |= targets
        inside = True
    if isinstance(node, ast.NamedExpr):  # the function's, also in a comprehension
        defined.add(node.target.id)
    for child in ast.iter_child_nodes(node):
        yield from _visit(child, bound, inside, defined, variables)


def test_a_name_that_python_3_12_mistakes() -> None:
    source = "def f(a):\n    b = {k: v for k, v in a}\n    return [v(k) for k in b]\n"
    assert mistaken(source) == [(3, "v")]
    assert not mistaken(source.replace("v(k)", "w(k)"))
    assert not mistaken(source.replace("f(a)", "f(a, v)"))


@pytest.mark.parametrize("package", ["gonogo", "workers", "service", "dashboards"])
def test_no_function_of_ours_has_it(package: str) -> None:
    files = subprocess.run(
        ["git", "ls-files", f"{package}/*.py"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split()
    assert files
    mistakes = {name: mistaken((ROOT / name).read_text("utf-8")) for name in files}
    assert {name: rows for name, rows in mistakes.items() if rows} == {}

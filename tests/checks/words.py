"""Find identifiers that name nothing, and docstrings whose opening says nothing.

`python -m tests.checks.words [PATH ...]` prints one line per finding and exits 1 for any;
without paths it reads every Python file of the packages. CONTRIBUTING.md says how we write.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (
    *("gonogo", "service", "workers", "dashboards/gonogo_dashboards", "migrations"),
    *("benchmarks", "examples", "tests"),
)
NAMELESS = {
    *("told", "said", "found", "own", "kept", "each", "looked", "asked", "wanted", "sung", "sang"),
    *("mine", "theirs", "ours", "held", "taken", "made"),
}
"""They say that somebody said, found or kept a value, not what the value is."""
EMPTY_OPENINGS = re.compile(r"(Of|That of|Those|What)\b")
"""A first line begins with a verb ("Return ...") or names the thing ("A page of a list.")."""


def findings(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, sentence) for each finding in a module's source. Raises SyntaxError."""
    for node in ast.walk(ast.parse(source)):
        for line, name in _defined(node):
            if name.strip("_").lower() in NAMELESS:
                yield line, f"the name `{name}` doesn't say what the value is"
        for line, word in _openings(node):
            yield line, f'a docstring opens with "{word}": begin with a verb or a noun'


def _defined(node: ast.AST) -> Iterator[tuple[int, str]]:
    """The names that a node defines, each with its line."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.lineno, node.id
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.lineno, node.attr
    elif isinstance(node, ast.arg):
        yield node.lineno, node.arg
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.lineno, node.name


def _openings(node: ast.AST) -> Iterator[tuple[int, str]]:
    """The first words of docstrings, and of strings behind an assignment that they document."""
    body = getattr(node, "body", None)
    for statement in body if isinstance(body, list) else ():
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            text = statement.value.value
            word = EMPTY_OPENINGS.match(text.strip()) if isinstance(text, str) else None
            if word is not None:
                yield statement.lineno, word[0]
                return


def main(arguments: Sequence[str]) -> int:
    """Print the findings of the paths, or of every package; return the exit code."""
    roots = [Path(argument) for argument in arguments] or [ROOT / folder for folder in FOLDERS]
    count = 0
    for root in roots:
        for path in sorted(root.rglob("*.py")) if root.is_dir() else [root]:
            if "node_modules" in path.parts:
                continue
            for line, sentence in sorted(findings(path.read_text("utf-8"))):
                shown = path.relative_to(ROOT) if path.is_absolute() else path
                print(f"{shown}:{line}: {sentence}")
                count += 1
    if count:
        print(f"{count} findings")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

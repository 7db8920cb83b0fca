"""Messages name pages of the manual, which every server has: an install has no folder docs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
PACKAGES = ("gonogo",)
PACKAGES += ("service/gonogo_service", "workers/gonogo_workers", "dashboards/gonogo_dashboards")
HINT = re.compile(r"manual: ([\w-]+)")


def texts() -> Iterator[tuple[Path, str]]:
    """Yield the text constants of all modules, without docstrings."""
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            tree = ast.parse(path.read_text())
            statements = [node for node in ast.walk(tree) if isinstance(node, ast.Expr)]
            docstrings = {id(node.value) for node in statements}
            for node in ast.walk(tree):
                if isinstance(node, ast.Constant) and id(node) not in docstrings:
                    yield path, str(node.value)


def test_messages_name_pages_of_the_manual_and_no_files_of_a_checkout() -> None:
    hints = []
    for path, text in texts():
        assert not re.search(r"docs/[\w-]+\.md", text), (path, text)
        hints += HINT.findall(text)
    assert len(hints) > 5
    for page in hints:
        assert (ROOT / f"docs/{page}.md").exists(), page

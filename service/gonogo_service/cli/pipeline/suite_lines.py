"""The line of a suite file on which each of its tests is written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gonogo.errors import FieldError
from gonogo.spec.suites import expand


def lines(path: Path, content: Mapping[str, Any]) -> dict[str, int]:
    """Return test -> line, counted from 1. Files that aren't YAML have no lines."""
    starts = _starts(path)
    try:
        templates = expand(content)
    except FieldError:  # the server tells what is wrong
        return {}
    numbers = {template.name: int(template.place.split(".")[1]) for template in templates}
    return {name: starts[number] for name, number in numbers.items() if number < len(starts)}


def _starts(path: Path) -> list[int]:
    """Return the first line of each entry."""
    import yaml

    if path.suffix not in {".yaml", ".yml"}:
        return []
    root = yaml.compose(path.read_text("utf-8"), Loader=yaml.SafeLoader)
    for key, value in root.value if isinstance(root, yaml.MappingNode) else ():
        if key.value == "entries" and isinstance(value, yaml.SequenceNode):
            return [entry.start_mark.line + 1 for entry in value.value]
    return []

"""The text of a suite's file with other tolerances: all else, also its comments, stays as it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

import yaml
from yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode


class NotEditable(ValueError):
    """The text can't be changed here; the message says why."""


class _Loader(yaml.SafeLoader):
    """Reads YAML, and so JSON, without aliases: a change at one place would change others."""

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        if self.check_event(yaml.AliasEvent):
            raise NotEditable("it has YAML aliases")
        return super().compose_node(parent, index)


class _Edit(NamedTuple):
    """A text that replaces the characters from start to end."""

    start: int
    end: int
    text: str


def read(text: str) -> dict[str, Any]:
    """Return the suite in a YAML or JSON text. Raises NotEditable."""
    try:
        content = yaml.load(text, _Loader)
    except (yaml.YAMLError, RecursionError):
        raise NotEditable("it is neither YAML nor JSON") from None
    if not isinstance(content, dict) or not isinstance(content.get("entries"), list):
        raise NotEditable("it is no suite in YAML or JSON")
    return content


def written(content: Mapping[str, Any]) -> str:
    """Return a suite as YAML."""
    return yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=True, width=100)


def with_tolerances(text: str, tolerances: Mapping[int, Mapping[str, Any]]) -> str:
    """Return the text with these tolerances of entries, by the entry's number.

    Raises NotEditable where that would not give the suite with these tolerances.
    """
    expected, root = deepcopy(read(text)), yaml.compose(text, _Loader)
    entries = _member(root, "entries")
    form = _Form(is_json=text.lstrip().startswith("{"))
    edits = []
    for number, tolerance in tolerances.items():
        entry = expected["entries"][number]
        entry["test"] = {**(entry.get("test") or {}), "tolerance": tolerance}
        edits += form.of_entry(entries.value[number], tolerance)  # type: ignore[union-attr]
    for edit in sorted(edits, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    if read(text) != expected:
        raise NotEditable("its form is not understood")
    return text


@dataclass(frozen=True)
class _Form:
    """The form of a file, in which values are written."""

    is_json: bool

    def of_entry(self, entry: Node, tolerance: Mapping[str, Any]) -> list[_Edit]:
        test = _member(entry, "test")
        if not isinstance(test, MappingNode):
            return [self.inserted(entry, "test", {"tolerance": tolerance})]
        declared = _member(test, "tolerance")
        if declared is None:
            return [self.inserted(test, "tolerance", tolerance)]
        numbers = self.numbers(declared, tolerance)
        return [self.replaced(declared, tolerance)] if numbers is None else numbers

    def numbers(self, node: Node, value: Any) -> list[_Edit] | None:
        """Return the edits of the numbers that differ; None where the keys differ, too."""
        if isinstance(node, ScalarNode) and not isinstance(value, Mapping):
            if yaml.safe_load(node.value) == value:
                return []
            return [_Edit(node.start_mark.index, node.end_mark.index, self.plain(value))]
        members = {key.value: member for key, member in node.value}
        if not isinstance(value, Mapping) or members.keys() != value.keys():
            return None
        parts = [self.numbers(members[name], value[name]) for name in value]
        if any(part is None for part in parts):
            return None
        return [edit for part in parts for edit in part or ()]

    def replaced(self, node: Node, value: Mapping[str, Any]) -> _Edit:
        if _is_block(node):
            lines = (f"{name}: {self.plain(member)}" for name, member in value.items())
            return _Edit(node.start_mark.index, _end(node), _newline(node).join(lines))
        return _Edit(node.start_mark.index, node.end_mark.index, self.plain(value))

    def inserted(self, node: Node, name: str, value: Any) -> _Edit:
        """Return the edit that adds a member: at the end of {...}, else as the first line."""
        member = self.plain({name: value})[1:-1]
        at = node.start_mark.index
        if _is_block(node):
            return _Edit(at, at, member + _newline(node))
        at = _end(node.value[-1][1]) if node.value else at + 1
        return _Edit(at, at, f", {member}" if node.value else member)

    def plain(self, value: Any) -> str:
        """Return a value in one line."""
        if self.is_json:
            return json.dumps(value)
        options: dict[str, Any] = {"default_flow_style": True, "sort_keys": False, "width": 10**6}
        text: str = yaml.safe_dump([value], **options)
        return text.strip()[1:-1]


def _member(node: Node | None, name: str) -> Node | None:
    members = node.value if isinstance(node, MappingNode) else ()
    return next((value for key, value in members if key.value == name), None)


def _is_block(node: Node) -> bool:
    return isinstance(node, CollectionNode) and not node.flow_style


def _newline(node: Node) -> str:
    return "\n" + " " * int(node.start_mark.column)


def _end(node: Node) -> int:
    """Return the end of a node; the mark of a block is behind the comments below it."""
    if not _is_block(node):
        return int(node.end_mark.index)
    last = node.value[-1]
    return _end(last[1] if isinstance(last, tuple) else last)

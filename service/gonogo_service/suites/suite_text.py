"""The text of a suite's file: whether it is of a suite, and the same with other tolerances."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

import yaml
from yaml.nodes import CollectionNode, MappingNode, Node

from gonogo.errors import FieldError
from gonogo.spec import json_text
from gonogo_service.suites.bodies import SuiteFile, SuiteIn
from gonogo_service.suites.noun import OF_A_RUN

MAX_DEPTH = 100
"""libyaml calls itself for each level, and would end the process."""
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_UNREADABLE = (
    *(AttributeError, LookupError, RecursionError, TypeError, ValueError),
    *(FieldError, yaml.YAMLError),
)


class NotEditable(ValueError):
    """A tolerance can't be changed in a file; the message says why."""


Edit = tuple[int, int, str]
"""Start, end, and the text that replaces the characters between them."""


def is_of(file: SuiteFile, suite: Mapping[str, Any]) -> bool:
    """Return whether a file has this suite, with or without the fields of a run."""
    try:
        if file.is_json:
            content = json_text.loads(file.text)
        else:
            list(_events(file.text))
            content = yaml.load(file.text, _LOADER)
        suite_fields = {name: value for name, value in content.items() if name not in OF_A_RUN}
        return SuiteIn.parse(suite_fields).content() == suite
    except _UNREADABLE:
        return False


def with_tolerances(
    file: SuiteFile, suite: Mapping[str, Any], tolerances: Mapping[int, Mapping[str, Any]]
) -> str:
    """Return the text of a suite's file with these tolerances of entries, by the entry's number.

    All else stays, also the comments outside of a tolerance. Raises NotEditable where the text
    would not be that of the suite with these tolerances.
    """
    if not file.is_json and any(isinstance(one, yaml.AliasEvent) for one in _events(file.text)):
        raise NotEditable("it has YAML aliases: a change at one place would change others")
    changed = deepcopy(dict(suite))
    for number, tolerance in tolerances.items():
        entry = changed["entries"][number]
        entry["test"] = {**(entry.get("test") or {}), "tolerance": tolerance}
    text = file.text
    try:
        entries = _members(yaml.compose(text, _LOADER))["entries"][1]
        edits = [_edit(file, entries.value[number], one) for number, one in tolerances.items()]
    except _UNREADABLE:
        edits = []
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    if not is_of(file.model_copy(update={"text": text}), changed):
        places = ", ".join(f"entries.{number}" for number in tolerances)
        raise NotEditable(f"the tolerance of {places} can't be replaced in it")
    return text


def _events(text: str) -> Iterator[yaml.Event]:
    """Yield the parts of a YAML text. Raises ValueError where it is nested too deep."""
    depth = 0
    for event in yaml.parse(text, _LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise ValueError("is nested too deep")
        yield event


def _edit(file: SuiteFile, entry: Any, tolerance: Mapping[str, Any]) -> Edit:
    """Return the edit that sets a tolerance: a new one is the first line, or the last in {...}."""
    node, name, value = entry, "test", {"tolerance": tolerance}
    if "test" in _members(entry):
        node, name, value = _members(entry)["test"][1], "tolerance", dict(tolerance)
    members, at = _members(node), node.start_mark.index
    if name in members:
        key, old = members[name]
        return key.end_mark.index, _end(old), f": {_plain(file, value)}"
    member = _plain(file, {name: value})[1:-1]
    if not node.flow_style:
        newline = "\r\n" if "\r\n" in file.text else "\n"
        return at, at, member + newline + " " * node.start_mark.column
    if not members:
        return at + 1, at + 1, member
    at = _end(node.value[-1][1])
    return at, at, f", {member}"


def _plain(file: SuiteFile, value: Mapping[str, Any]) -> str:
    """Return an object in one line."""
    if file.is_json:
        return json.dumps(value)
    text: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10**6)
    return text.strip()


def _members(node: Any) -> dict[str, tuple[Node, Any]]:
    """Return the key and the value of each member of an object; of equal keys the last."""
    pairs = node.value if isinstance(node, MappingNode) else ()
    return {key.value: (key, value) for key, value in pairs}


def _end(node: Node) -> int:
    """Return the end of a node; the mark of a block is behind the comments below it."""
    if not isinstance(node, CollectionNode) or node.flow_style:
        return int(node.end_mark.index)
    last = node.value[-1]
    return _end(last[1] if isinstance(last, tuple) else last)

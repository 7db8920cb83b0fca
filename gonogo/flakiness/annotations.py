"""Annotations of files on GitHub and GitLab: how loud each class is, and which file it names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from gonogo.flakiness.classes import Class

Level = Literal["failure", "warning", "notice"]

LEVELS: Mapping[Class, Level] = {
    Class.new_failure: "failure",
    Class.new_hollow_pass: "failure",
    Class.unknown: "warning",
    Class.infrastructure: "warning",
    Class.pending: "warning",
    Class.false_alarm: "warning",
    Class.broken_on_base: "notice",
    Class.known_flaky: "notice",
    Class.known_hollow: "notice",
    Class.arithmetic_changed: "notice",
}
"""Levels of annotations; other classes get no annotation."""


def file_of(within: str) -> str | None:
    """Return the file of a pytest test ("tests/test_x.py::test_y"); None for any other test."""
    file, mark, _ = within.partition("::")
    is_inside = not file.startswith("/") and ".." not in file.split("/")
    return file if mark and file.endswith(".py") and is_inside else None

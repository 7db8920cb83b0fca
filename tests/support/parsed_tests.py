"""A job's `test` as an object: a selection, or the test of a kernel."""

from __future__ import annotations

from gonogo.spec.selections import AnyTest, Selection, is_selection
from gonogo.spec.test_spec import TestSpec


def parse_test(data: object) -> AnyTest:
    """Parse a job's `test`. Raises FieldError."""
    return Selection.parse(data) if is_selection(data) else TestSpec.parse(data)

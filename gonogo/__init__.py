"""GoNoGo's domain, and the functions that tests import: `gonogo.compare`, `gonogo.judge` and more.

A test calls `gonogo.compare(...)` to have its arrays compared and judged (docs/pytest.md). A
program calls `gonogo.judge(...)` (docs/python.md).
Importing this package loads only the standard library, because it is copied as it is into the
interpreters of other people's builds.
"""

from gonogo.public.dropin import assert_allclose, assert_close, assert_with_pcc, compare
from gonogo.public.judgment import Judgment, judge, pool

__all__ = [
    "Judgment",
    "assert_allclose",
    "assert_close",
    "assert_with_pcc",
    "compare",
    "judge",
    "pool",
]

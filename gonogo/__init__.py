"""GoNoGo's domain.

A test of yours says `gonogo.compare(...)` to have its arrays compared and judged (docs/pytest.md).

Importing it loads the standard library only: it is copied as it is into the interpreters of other
people's builds.
"""

from gonogo.public.dropin import assert_allclose, assert_close, assert_with_pcc, compare

__all__ = ["assert_allclose", "assert_close", "assert_with_pcc", "compare"]

"""GoNoGo's domain, and the functions that tests import: `gonogo.compare` and drop-in assertions.

A test calls `gonogo.compare(...)` to have its arrays compared and judged (docs/pytest.md).
Importing this package loads only the standard library, because it is copied as it is into the
interpreters of other people's builds.
"""

from gonogo.public.dropin import assert_allclose, assert_close, assert_with_pcc, compare

__all__ = ["assert_allclose", "assert_close", "assert_with_pcc", "compare"]

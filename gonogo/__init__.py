"""GoNoGo's domain. A test of yours says `gonogo.compare(kernel=..., x=..., dx=...)` to have its arrays judged (docs/pytest.md).

Importing it loads the standard library only: it is copied as it is into the interpreters of other people's builds.
"""

from gonogo.handover import compare

__all__ = ["compare"]

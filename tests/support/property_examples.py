"""The number of examples of a test that needs more or fewer than most, in every profile."""

from __future__ import annotations

from hypothesis import settings

USUAL = "gonogo"
"""The profile of `make test` (tests/conftest.py)."""


def examples(count: int) -> int:
    """Return how many examples the profile at hand takes of a test with `count` in `make test`.

    A number of its own would hold in `make explore` and `make fuzz`, too, and beat theirs.
    """
    return count * settings.default.max_examples // settings.get_profile(USUAL).max_examples

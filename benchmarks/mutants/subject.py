"""A part of the code whose mutants are tried."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Subject:
    """Some modules, and the tests that have to notice a fault in them; the quick ones first."""

    name: str
    modules: tuple[str, ...]
    tests: tuple[str, ...]

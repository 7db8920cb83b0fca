"""Schemas that the answers about a test's flakiness share."""

from __future__ import annotations

from dataclasses import dataclass

from gonogo_service.kit.database.records import from_object
from gonogo_service.tests.variants import Variant


@dataclass(frozen=True)
class VariantOut:
    """A variant of a test: a branch on one kind of board."""

    branch: str
    arch: str
    board: str


def shape(variant: Variant) -> VariantOut:
    """Return a variant without its test, which the answer names."""
    return from_object(VariantOut, variant)

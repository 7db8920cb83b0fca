"""The labels of flags' kinds, which pages and the command show; the values are the database's."""

from __future__ import annotations

from collections.abc import Mapping

LABELS: Mapping[str, str] = {
    "passes_by_tolerance": "Hollow pass",
    "tolerance_too_tight": "False alarm",
    "flaky": "Flaky",
    "nondeterministic": "Nondeterministic",
    "device_dependent": "Device-dependent",
    "context_dependent": "Context-dependent",
    "latent_flake": "Latent flake",
    "fix_masked": "Masked fix",
    "blunt_test": "Blunt test",
    "hangs": "Hangs",
    "crashes": "Crashes",
    "arithmetic_changed": "Arithmetic changed",
}


def kind_of(text: str) -> str:
    """Return the kind with this label, in any case; any other text as it is."""
    return next((kind for kind, label in LABELS.items() if label.lower() == text.lower()), text)

"""The commands of nouns that have none of their own."""

from __future__ import annotations

from gonogo.cli.kit.nouns import app_of
from gonogo_service.builds.noun import BUILDS

builds = app_of(BUILDS)

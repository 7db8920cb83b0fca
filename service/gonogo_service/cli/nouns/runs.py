"""`gonogo runs`: suites that were submitted, each with one verdict."""

from __future__ import annotations

from gonogo.cli.kit import nouns
from gonogo_service.cli import suites
from gonogo_service.suites.noun import RUNS

app = nouns.app_of(RUNS, print_one=suites.report)

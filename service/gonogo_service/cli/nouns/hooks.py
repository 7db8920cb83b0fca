"""`gonogo hooks`: deliveries of GitHub and other CI that came in."""

from __future__ import annotations

from gonogo.cli.kit.nouns import app_of
from gonogo_service.ci.hooks_noun import HOOKS

app = app_of(HOOKS)

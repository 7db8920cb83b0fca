"""The commands of nouns that have none of their own."""

from __future__ import annotations

from gonogo.cli.kit.nouns import app_of
from gonogo_service.bisections.noun import BISECTIONS
from gonogo_service.builds.noun import BUILDS
from gonogo_service.ci.hooks_noun import HOOKS
from gonogo_service.devices.noun import DEVICES
from gonogo_service.gauges.noun import GAUGES

bisections = app_of(BISECTIONS)
builds = app_of(BUILDS)
devices = app_of(DEVICES)
gauges = app_of(GAUGES)
hooks = app_of(HOOKS)

"""Limits on the size of request bodies, by address: uploads may be larger than other requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from starlette.middleware.body_limit import RequestBodyLimitResponder
from starlette.types import ASGIApp, Receive, Scope, Send

from gonogo import urls
from gonogo_settings import Settings


@dataclass(frozen=True)
class BodyLimit:
    """A number of bytes, and the setting that defines it."""

    size: int
    setting: str


MAX_GITHUB_PAYLOAD = BodyLimit(25 * 2**20, "GitHub sends no larger payload")


@dataclass(frozen=True)
class BodyLimits:
    """The body limits of all addresses."""

    default: BodyLimit
    by_path: Mapping[str, BodyLimit] = field(default_factory=dict)
    """Path -> limit, for paths that don't use the default."""

    @classmethod
    def of_settings(cls, settings: Settings) -> Self:
        """Read the limits from the settings."""
        default = BodyLimit(settings.max_body_bytes, "GONOGO_MAX_BODY_BYTES")
        by_path = {
            urls.IMPORTS: BodyLimit(settings.max_import_bytes, "GONOGO_MAX_IMPORT_BYTES"),
            urls.GITHUB_DELIVERIES: MAX_GITHUB_PAYLOAD,
        }
        return cls(default, by_path)

    def of(self, path: str) -> BodyLimit:
        """Return the limit of an address."""
        return self.by_path.get(path, self.default)


class LimitBodies:
    """Middleware that stops reading at the limit, whatever length the request claims."""

    def __init__(self, app: ASGIApp, limits: BodyLimits) -> None:
        self.app = app
        self.limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        await RequestBodyLimitResponder(self.app, self.limits.of(scope["path"]).size)(
            scope, receive, send
        )

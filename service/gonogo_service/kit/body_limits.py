"""How large a request's body may be, by its address: files may be larger than questions."""

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
    """A number of bytes, and the setting that it comes from."""

    size: int
    setting: str


MOST_OF_GITHUB = BodyLimit(25 * 2**20, "GitHub sends no larger payload")


@dataclass(frozen=True)
class BodyLimits:
    """The limit of every address."""

    usual: BodyLimit
    own: Mapping[str, BodyLimit] = field(default_factory=dict)
    """Path -> limit, where it is another one."""

    @classmethod
    def of_settings(cls, settings: Settings) -> Self:
        """As an administrator has set them."""
        usual = BodyLimit(settings.max_body_bytes, "GONOGO_MAX_BODY_BYTES")
        own = {
            urls.IMPORTS: BodyLimit(settings.max_import_bytes, "GONOGO_MAX_IMPORT_BYTES"),
            urls.GITHUB_DELIVERIES: MOST_OF_GITHUB,
        }
        return cls(usual, own)

    def of(self, path: str) -> BodyLimit:
        """The limit of an address."""
        return self.own.get(path, self.usual)


class LimitBodies:
    """The middleware that stops reading where the limit is passed, whatever length the request
    claims.
    """

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

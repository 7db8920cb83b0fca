"""Webhooks of a service, and the background's loop that sends their messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy.orm import Session

from api import SECRET, Api
from gonogo_service.background.deliver import Deliver, events
from gonogo_service.kit.background_context import BackgroundContext
from gonogo_service.kit.outbox.model import OutboxRow
from gonogo_service.kit.principals import Keys
from gonogo_service.webhooks import sending
from gonogo_service.webhooks.model import DeliveryRow
from gonogo_service.webhooks.secrets import Box
from gonogo_service.webhooks.sending import Sender
from webhook_receiver import wait_for_senders

LOCAL = ("127.0.0.0/8",)


class Webhooks:
    """The webhooks of a service, as a test uses them."""

    def __init__(self, api: Api, core: BackgroundContext) -> None:
        self.api, self.core = api, core
        self.sender = Sender(core, Box(Keys(SECRET)))
        self.loop = Deliver(core, {DeliveryRow: self.sender.send})

    def strict(self) -> Webhooks:
        """The same, for which no private address is allowed."""
        settings = self.core.settings.model_copy(update={"webhook_private": ()})
        return Webhooks(self.api, replace(self.core, settings=settings))

    def subscribe(self, url: str, **changes: Any) -> dict[str, Any]:
        body = {"url": url, "events": ["job.finished"], **changes}
        answer = self.api.client.post("/api/v1/webhooks", json=body)
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    def test(self, *webhooks: dict[str, Any]) -> None:
        """Ask for a test message to each."""
        for webhook in webhooks:
            answer = self.api.client.post(f"/api/v1/webhooks/{webhook['id']}:test")
            assert answer.status_code == 202, answer.text

    def fan_out(self) -> None:
        """Deliver the outbox: store a message for each subscription to a job's end."""

        def tell(session: Session, reference: Mapping[str, Any]) -> None:
            sending.fan_out(session, "job.finished", reference, self.core.settings.url)

        Deliver(self.core, {OutboxRow: events(self.core, {"job.finished": tell})}).run_once()
        wait_for_senders()

    def send(self) -> None:
        """Send every message that is due now."""
        self.loop.run_once()
        wait_for_senders()

    def deliveries(self, webhook: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the messages of a webhook, newest first."""
        return list(self.api.get(f"/webhooks/{webhook['id']}/deliveries")["items"])

    def whole(self, webhook: dict[str, Any], delivery: dict[str, Any]) -> dict[str, Any]:
        """Return a message with its payload and its tries."""
        path = f"/webhooks/{webhook['id']}/deliveries/{delivery['id']}"
        whole: dict[str, Any] = self.api.get(path)
        return whole

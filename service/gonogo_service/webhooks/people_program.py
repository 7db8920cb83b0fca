"""The program that sends one message with apprise: a JSON object on stdin, one on stdout.

apprise resolves names and connects on its own, in many ways. So every connection of this process is
checked where Python makes it, with the address that it goes to: neither a redirect nor a name whose
answer changes leads to an address that is not permitted.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import apprise

from gonogo_service.webhooks.addresses import networks, permitted


class _Lines(logging.Handler):
    """Keeps the warnings, which say why nothing was sent."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def main() -> None:
    """Send the message of stdin; print {"error": null or the reason}."""
    task = json.load(sys.stdin)
    allowed, log = networks(task["private"]), _Lines()

    def guard(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "socket.connect":
            address = arguments[1][0] if isinstance(arguments[1], tuple) else None
            if not isinstance(address, str) or not permitted(address, allowed):
                reason = (
                    f"{address} is not a public address (GONOGO_WEBHOOK_PRIVATE allows networks)"
                )
                log.lines.append(reason)
                raise PermissionError(reason)

    sys.addaudithook(guard)
    logging.getLogger("apprise").addHandler(log)
    asset = apprise.AppriseAsset(
        app_id="GoNoGo",
        app_desc="GoNoGo",
        image_url_mask="",
        async_mode=False,
        http_redirects=False,
    )
    people = apprise.Apprise(asset=asset)
    text, title = task["text"], task["title"]
    sent = people.add(task["url"]) and people.notify(
        text, title, body_format=apprise.NotifyFormat.TEXT
    )
    print(json.dumps({"error": None if sent else "; ".join(log.lines) or "not sent"}))


if __name__ == "__main__":
    main()

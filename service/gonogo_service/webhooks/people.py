"""Messages to people through the library apprise: its URLs that may be used, and the sender.

Run as a program, this module sends one message: a JSON object on stdin, one on stdout. apprise
resolves names and connects on its own, in many ways. So every connection of that process is checked
where Python makes it, with the address that it goes to: neither a redirect nor a name whose answer
changes leads to an address that is not permitted.
"""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from gonogo_service.webhooks.addresses import networks, permitted

TIMEOUT_S = 45.0
"""Maximum time for a message, including the start of its process."""
MAX_SUBJECT_CHARS = 200
_MAIL = ("from", "to", "cc", "bcc", "name", "reply", "smtp", "mode", "user", "pass")
_CHATS = "slack discord gchat tgram workflows mmost mmosts rocket rockets ntfy ntfys"
SERVICES: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(_CHATS.split(), ()),
    "mailto": _MAIL,
    "mailtos": _MAIL,
}
"""The schemas of apprise that may be used, and the options that may follow the "?" in their URLs.

All of them send to people over TCP. Others write to this machine (dbus, syslog, windows), are for
programs (json, xml, mqtt), or cost money per message (SMS). Other options read a file here
(template, pgpkey) or weaken a check (verify, redirect).
"""


def problem_of(url: str) -> tuple[str, str] | None:
    """Return what is wrong with an apprise URL, and what is allowed; None if it may be used."""
    parts = re.fullmatch(r"([a-z]+)://[^?\s]+(?:\?(\S*))?", url)
    if parts is None or parts[1] not in SERVICES:
        services = ", ".join(f"{schema}://" for schema in SERVICES)
        return "is not an apprise URL of an allowed service", services
    schema, allowed = parts[1], SERVICES[parts[1]]
    options = re.split("[&;]", parts[2]) if parts[2] else ()
    if any(option.partition("=")[0] not in allowed for option in options):
        return f"has an option that {schema}:// may not have here", ", ".join(allowed) or "none"
    return None


def shown(url: str) -> str:
    """Return the part of an apprise URL that may be shown: `slack://…`."""
    return url.partition("://")[0] + "://…"


def send(url: str, text: str, private: Sequence[str]) -> str | None:
    """Send a line of text; return None, or the reason why it was not sent.

    The process that sends it has none of our variables (a proxy would resolve the names again) and
    no .netrc, and it ends in time. `private`: the networks that are not public and may be connected
    to. Raises TimeoutError and ValueError.
    """
    title = f"GoNoGo: {text}"[:MAX_SUBJECT_CHARS] if url.startswith("mailto") else ""
    task = {"url": url, "title": title, "text": text, "private": list(private)}
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-X", "utf8", "-m", __name__],
            input=json.dumps(task),
            capture_output=True,
            encoding="utf-8",
            timeout=TIMEOUT_S,
            env={"NETRC": os.devnull},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"not sent within {TIMEOUT_S:.0f} s") from None
    if done.returncode:
        raise ValueError(f"the sender ended with {done.returncode}")
    error = json.loads(done.stdout)["error"]
    return None if error is None else _without_secrets(str(error), url)


def _without_secrets(error: str, url: str) -> str:
    """Return the error without parts of the URL: the log of deliveries is shown."""
    parts = {part for text in (url, unquote(url)) for part in re.split(r"[/:@?&;=#,]+", text)}
    for part in sorted((part for part in parts if len(part) > 5), key=len, reverse=True):
        error = error.replace(part, "…")
    return error


def main() -> None:
    """Send the message of stdin; print {"error": null or the reason}."""
    import apprise

    task, lines = json.load(sys.stdin), list[str]()
    allowed = networks(task["private"])

    def guard(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "socket.connect":
            address = arguments[1][0] if isinstance(arguments[1], tuple) else None
            if not isinstance(address, str) or not permitted(address, allowed):
                reason = (
                    f"{address} is not a public address (GONOGO_WEBHOOK_PRIVATE allows networks)"
                )
                lines.append(reason)
                raise PermissionError(reason)

    sys.addaudithook(guard)
    log = logging.Handler(logging.WARNING)  # the warnings say why nothing was sent
    log.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("apprise").addHandler(log)
    asset = apprise.AppriseAsset(
        app_id="GoNoGo",
        app_desc="GoNoGo",
        image_url_mask="",
        async_mode=False,
        http_redirects=False,
    )
    people = apprise.Apprise(asset=asset)
    sent = people.add(task["url"]) and people.notify(
        task["text"], task["title"], body_format=apprise.NotifyFormat.TEXT
    )
    print(json.dumps({"error": None if sent else "; ".join(lines) or "not sent"}))


if __name__ == "__main__":
    main()

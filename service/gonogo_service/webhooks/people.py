"""Messages to people through the library apprise: its URLs that may be used, and the sender."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from urllib.parse import unquote

from gonogo_service.kit.problems import BadField

TIMEOUT_S = 45.0
"""Maximum time for a message, including the start of its process."""
MAX_SUBJECT_CHARS = 200

_MAIL = ("from", "to", "cc", "bcc", "name", "reply", "smtp", "mode", "user", "pass")
SERVICES: Mapping[str, Sequence[str]] = {
    # chats in the cloud: the service's own host
    "slack": (),
    "discord": (),
    "gchat": (),  # Google Chat
    "tgram": (),  # Telegram
    # chats whose host the URL names
    "workflows": (),  # Microsoft Teams
    "mmost": (),  # Mattermost; with s over TLS, like the next ones
    "mmosts": (),
    "rocket": (),  # Rocket.Chat
    "rockets": (),
    "ntfy": (),
    "ntfys": (),
    # mail, through the server that the URL names
    "mailto": _MAIL,
    "mailtos": _MAIL,
}
"""The schemas of apprise that may be used, and the options that may follow the "?" in their URLs.

All of them send to people over TCP. Others write to this machine (dbus, syslog, windows), are for
programs (json, xml, mqtt), or cost money per message (SMS). Other options read a file here
(template, pgpkey) or weaken a check (verify, redirect).
"""


def check(url: str) -> str:
    """Return the part of an apprise URL that may be shown: `slack://…`.

    Raises BadField for a URL that may not be used; the error doesn't repeat it.
    """
    parts = re.fullmatch(r"([a-z]+)://[^?\s]+(?:\?(\S*))?", url)
    if parts is None or parts[1] not in SERVICES:
        raise BadField(
            "url",
            "…",
            "is not an apprise URL of an allowed service",
            limit=", ".join(f"{schema}://" for schema in SERVICES),
        )
    schema, options = parts[1], parts[2]
    for option in re.split("[&;]", options) if options else ():
        if option.partition("=")[0] not in SERVICES[schema]:
            raise BadField(
                "url",
                "…",
                f"has an option that {schema}:// may not have here",
                limit=", ".join(SERVICES[schema]) or "none",
            )
    return f"{schema}://…"


def send(url: str, text: str, private: Sequence[str]) -> str | None:
    """Send a line of text; return None, or the reason why it was not sent.

    A process of its own sends it: its network is guarded (see people_program), it has none of our
    variables (a proxy would resolve the names again) and no .netrc, and it ends in time. `private`:
    the networks that are not public and may be connected to. Raises TimeoutError and ValueError.
    """
    check(url)
    task = {
        "url": url,
        "title": f"GoNoGo: {text}"[:MAX_SUBJECT_CHARS] if url.startswith("mailto") else "",
        "text": text,
        "private": list(private),
    }
    program = [sys.executable, "-P", "-X", "utf8", "-m", "gonogo_service.webhooks.people_program"]
    try:
        done = subprocess.run(
            program,
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

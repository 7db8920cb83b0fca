"""Messages by email, through the SMTP server of the settings."""

from __future__ import annotations

import smtplib
import ssl
from email.message import EmailMessage
from urllib.parse import unquote, urlsplit

from gonogo_settings import Settings

TIMEOUT_S = 15.0
DELIVERED = 250


def send(settings: Settings, address: str, text: str, message_id: str) -> int:
    """Send one message; return SMTP's status 250.

    Raises OSError (including smtplib.SMTPException), and ValueError without a server in the
    settings.
    """
    if settings.smtp_url is None or settings.mail_from is None:
        raise ValueError("GONOGO_SMTP_URL and GONOGO_MAIL_FROM are not set")
    parts = urlsplit(settings.smtp_url.get_secret_value())
    message = EmailMessage()
    message["From"], message["To"] = settings.mail_from, address
    message["Subject"] = " ".join(f"GoNoGo: {text}".split())[:200]
    message["Message-ID"] = f"<{message_id}@{settings.mail_from.rpartition('@')[2]}>"
    message.set_content(text)
    secure = parts.scheme == "smtps"
    host, port = parts.hostname or "localhost", parts.port or (465 if secure else 25)
    server: smtplib.SMTP
    if secure:
        server = smtplib.SMTP_SSL(
            host, port, timeout=TIMEOUT_S, context=ssl.create_default_context()
        )
    else:
        server = smtplib.SMTP(host, port, timeout=TIMEOUT_S)
    with server:
        if parts.scheme == "smtp+starttls":
            server.starttls(context=ssl.create_default_context())
        if parts.username:
            server.login(unquote(parts.username), unquote(parts.password or ""))
        server.send_message(message)
    return DELIVERED

"""Keys derived from GONOGO_SECRET_KEY, and the one that signs the service's messages to hosts."""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

# imported on demand: not every process that derives a key talks to hosts
if TYPE_CHECKING:
    from gonogo_workers.queue import PrivateKey


def derived(secret: str, purpose: str) -> bytes:
    """Return the 32-byte key of a purpose."""
    return hmac.new(secret.encode(), b"gonogo " + purpose.encode(), hashlib.sha256).digest()


def service_key(secret: str) -> PrivateKey:
    """Return the key that signs chunks, orders, cancels and replies.

    It is derived, so that the API, every background process and the commands agree on it without
    one more secret to keep.
    """
    from gonogo_workers.queue import PrivateKey

    return PrivateKey.of(derived(secret, "messages to hosts"))

"""Keys derived from GONOGO_SECRET_KEY."""

from __future__ import annotations

import hashlib
import hmac


def derived(secret: str, purpose: str) -> bytes:
    """Return the 32-byte key of a purpose."""
    return hmac.new(secret.encode(), b"gonogo " + purpose.encode(), hashlib.sha256).digest()

"""Ed25519 keys of the service and the hosts, and the one-time code that enrolls a host.

`cryptography` is imported on demand: its import takes as long as half of the API's.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import secrets
import zlib
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
CODE_PREFIX: Final = "gni_"
_INVITATION: Final = b"gonogo invitation "
_PROOF: Final = b"gonogo key for "
"""No sealed message begins with it, so that a proof is never the signature of one."""


def encode(raw: bytes) -> str:
    """Return bytes as base64 for URLs, without padding."""
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def decode(text: str, size: int) -> bytes:
    """Return the bytes that `encode` wrote. Raises ValueError unless there are `size` of them.

    One value has one spelling: a changed text is never the same signature.
    """
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeError) as problem:
        raise ValueError("is not base64") from problem
    if len(raw) != size or encode(raw) != text:
        raise ValueError(f"is not base64 of {size} bytes")
    return raw


@dataclass(frozen=True)
class PublicKey:
    """A key that checks signatures."""

    raw: bytes

    @classmethod
    def parse(cls, text: str) -> PublicKey:
        """Return the key of its text. Raises ValueError."""
        return cls(decode(text, KEY_BYTES))

    @property
    def text(self) -> str:
        """The key as text: 43 characters."""
        return encode(self.raw)

    @property
    def id(self) -> str:
        """The name under which messages name the key."""
        return hashlib.sha256(self.raw).hexdigest()[:32]

    def named(self, key_id: str) -> PublicKey | None:
        """Return this key if the id is its own: for a receiver that knows one key."""
        return self if self.id == key_id else None

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Return whether the signature is this key's, of this message."""
        from cryptography.exceptions import InvalidSignature

        try:
            _loaded(self.raw).verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True


@lru_cache(maxsize=1024)
def _loaded(raw: bytes) -> Any:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    return Ed25519PublicKey.from_public_bytes(raw)


@dataclass(frozen=True)
class PrivateKey:
    """A key that signs. Its text never gets into a message or a log."""

    raw: bytes = field(repr=False)
    public: PublicKey
    id: str
    _key: Ed25519PrivateKey = field(repr=False, compare=False)

    @classmethod
    def of(cls, raw: bytes) -> PrivateKey:
        """Return the key with these 32 secret bytes. Raises ValueError for another number."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        key = Ed25519PrivateKey.from_private_bytes(raw)
        public = PublicKey(key.public_key().public_bytes_raw())
        return cls(raw, public, public.id, key)

    @classmethod
    def generate(cls) -> PrivateKey:
        """Return a new random key."""
        return cls.of(secrets.token_bytes(KEY_BYTES))

    @classmethod
    def parse(cls, text: str) -> PrivateKey:
        """Return the key of its text. Raises ValueError."""
        return cls.of(decode(text, KEY_BYTES))

    @property
    def text(self) -> str:
        """The key as text, for a file that its owner alone can read."""
        return encode(self.raw)

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message."""
        return self._key.sign(message)


@dataclass(frozen=True)
class Invitation:
    """The content of a one-time code: the service's public key, and a secret.

    The secret makes a key pair of its own, which signs the request to enroll. So the database holds
    only the public half, and the code's text never travels.
    """

    service: PublicKey
    secret: bytes = field(repr=False)

    @classmethod
    def generate(cls, service: PublicKey) -> Invitation:
        """Return a new invitation to this service."""
        return cls(service, secrets.token_bytes(KEY_BYTES))

    @property
    def key(self) -> PrivateKey:
        """The key that signs the request to enroll."""
        return PrivateKey.of(hashlib.sha256(_INVITATION + self.secret).digest())

    @property
    def code(self) -> str:
        """The code as an admin passes it on; its last four bytes detect a typing mistake."""
        content = self.service.raw + self.secret
        return CODE_PREFIX + encode(content + zlib.crc32(content).to_bytes(4, "big"))

    @classmethod
    def parse(cls, code: str) -> Invitation:
        """Return the content of a code. Raises ValueError without quoting the code."""
        text = code.strip()
        try:
            raw = decode(text.removeprefix(CODE_PREFIX), 2 * KEY_BYTES + 4)
        except ValueError:
            raw = b""
        content, check = raw[:-4], raw[-4:]
        if not text.startswith(CODE_PREFIX) or zlib.crc32(content).to_bytes(4, "big") != check:
            raise ValueError(
                "the code is incomplete or mistyped; allowed: the line that begins with"
                f" {CODE_PREFIX}, as `gonogo hosts invite` printed it"
            )
        return cls(PublicKey(content[:KEY_BYTES]), content[KEY_BYTES:])


def proof(key: PrivateKey, sealed_by: str) -> str:
    """Return the proof that the sender of a message, sealed by another key, has this key."""
    return encode(key.sign(_PROOF + sealed_by.encode()))


def proves(key: PublicKey, text: str, sealed_by: str) -> bool:
    """Return whether `text` is the `proof` of a key."""
    try:
        signature = decode(text, SIGNATURE_BYTES)
    except ValueError:
        return False
    return key.verifies(signature, _PROOF + sealed_by.encode())

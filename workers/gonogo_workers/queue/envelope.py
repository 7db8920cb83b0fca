"""The envelope of every message: `seal` writes it, `unseal` checks it.

A sealed message is one ASCII text, `SIGNATURE VERSION KEY TASK NUMBER ENCODING`, a line feed, and
the payload. The Ed25519 signature covers everything behind the first space. Nothing of the payload
is decompressed or parsed before the signature is checked, and all sizes are checked before that.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gonogo_workers.queue import keys
from gonogo_workers.queue.keys import PrivateKey, PublicKey
from gonogo_workers.queue.names import CLOCK_SKEW_S, LIMITS

VERSION: Final = "2"
PLAIN, COMPRESSED = "json", "zlib"
COMPRESS_FROM_BYTES: Final = 8 * 1024
MAX_HEAD: Final = 256
MAX_ORDER_BYTES: Final = 64 * 1024
"""The largest sealed text in a key of its own: a cancel, an order, an answer."""
MAX_BODY_BYTES: Final = 32 * 2**20
"""The largest unpacked body: a message must not exhaust the memory of its reader."""
MAX_VALUES: Final = 2_000_000
"""The most values in a body: an empty list takes 2 bytes of a text, and 64 of memory."""


class TooLarge(ValueError):
    """A message that is larger than its reader takes."""


class MessageRefused(Exception):
    """A message that must not be acted on. `reason` is one word, for counting."""

    def __init__(self, reason: str, words: str) -> None:
        super().__init__(words)
        self.reason = reason


@dataclass(frozen=True)
class Message:
    """A message whose signature, task and age are right."""

    key_id: str
    task: str
    number: int
    """The microseconds since 1970 at which it was sealed; rises with every message of a process."""
    digest: str
    """A hash of the payload: the same for a message that is delivered twice."""
    body: dict[str, Any]


def seal(key: PrivateKey, task: str, body: Mapping[str, Any], number: int | None = None) -> str:
    """Return the sealed message. `number` defaults to now, in microseconds.

    Raises ValueError for NaN and infinity, which are null in our JSON, and TooLarge for a message
    that is larger than its reader takes.
    """
    number = time.time_ns() // 1000 if number is None else number
    encoding, payload = pack(body)
    signed = f"{VERSION} {key.id} {task} {number} {encoding}\n{payload}"
    if len(signed) > LIMITS[task].max_bytes - MAX_HEAD:
        raise TooLarge(
            f"{task} of {len(signed)} bytes is too large;"
            f" allowed: {LIMITS[task].max_bytes - MAX_HEAD}"
        )
    return f"{keys.encode(key.sign(signed.encode()))} {signed}"


def unseal(
    text: str,
    task: str,
    find_key: Callable[[str], PublicKey | None],
    *,
    now: float | None = None,
) -> Message:
    """Return the message of a sealed text.

    `find_key` returns the public key of an id, None for an unknown one. Raises MessageRefused
    unless size, form, task, key, signature and age are right.
    """
    if len(text) > LIMITS[task].max_bytes:
        raise MessageRefused("size", f"the message has more than {LIMITS[task].max_bytes} bytes")
    fields = _fields(text)
    if not fields or not text.isascii():
        raise MessageRefused("form", "the message isn't sealed")
    encoded, version, key_id, its_task, digits, encoding = fields
    if version != VERSION or encoding not in (PLAIN, COMPRESSED):
        raise MessageRefused("form", f"the message has version {version!r}; allowed: {VERSION}")
    if its_task != task:
        raise MessageRefused("task", f"the message is for {its_task!r}, not {task!r}")
    key = find_key(key_id)
    if key is None:
        raise MessageRefused("key", f"nobody that may send {task} has the key {key_id[:32]!r}")
    try:
        signature = keys.decode(encoded, keys.SIGNATURE_BYTES)
    except ValueError:
        signature = b""
    if not key.verifies(signature, text[len(encoded) + 1 :].encode()):
        raise MessageRefused("signature", "the signature is wrong")
    if not digits.isdigit() or len(digits) > 18:
        raise MessageRefused("form", "the message has no number")
    number = int(digits)
    _check_age(task, (time.time() if now is None else now) - number / 1e6)
    payload = text.partition("\n")[2]
    digest = hashlib.sha256(payload.encode()).hexdigest()[:16]
    return Message(key_id, task, number, digest, unpack(encoding, payload))


def _check_age(task: str, age: float) -> None:
    limits = LIMITS[task]
    if age > limits.max_age_s:
        raise MessageRefused("age", f"the message is {age:.0f} s old")
    if age < -CLOCK_SKEW_S and not limits.future:
        raise MessageRefused(
            "future",
            f"the message is from {-age:.0f} s in the future: host and service have other clocks",
        )


def task_of(text: str) -> str | None:
    """Return the task that a sealed text names, unchecked; None for a text of another form."""
    fields = _fields(text)
    return fields[3] if fields and fields[3] in LIMITS else None


def _fields(text: str) -> list[str]:
    """Return the six fields of a text's head; none for a text of another form."""
    head, separator, _ = text[: MAX_HEAD + 1].partition("\n")
    fields = head.split(" ")
    return fields if separator and len(fields) == 6 else []


def pack(body: Mapping[str, Any]) -> tuple[str, str]:
    """Return (encoding, payload) of a JSON object: compressed when that pays.

    Raises ValueError for NaN and infinity, and TooLarge for what `unpack` refuses.
    """
    text = json.dumps(body, separators=(",", ":"), allow_nan=False)
    if len(text) > MAX_BODY_BYTES:
        raise TooLarge(f"a body of {len(text)} bytes is too large; allowed: {MAX_BODY_BYTES}")
    if (count := count_values(text)) > MAX_VALUES:
        raise TooLarge(f"a body of {count} values is too large; allowed: {MAX_VALUES}")
    if len(text) <= COMPRESS_FROM_BYTES:
        return PLAIN, text
    # Level 1: these are digits; level 6 takes five times as long for a tenth less
    return COMPRESSED, base64.b64encode(zlib.compress(text.encode(), 1)).decode()


def unpack(encoding: str, payload: str) -> dict[str, Any]:
    """Return the JSON object of a payload.

    Raises MessageRefused for anything else, or when it unpacks to more than MAX_BODY_BYTES.
    """
    try:
        raw = payload
        if encoding == COMPRESSED:
            inflater = zlib.decompressobj()
            unpacked = inflater.decompress(base64.b64decode(payload, validate=True), MAX_BODY_BYTES)
            if not inflater.eof:
                raise MessageRefused(
                    "size",
                    f"the message is cut off or unpacks to more than {MAX_BODY_BYTES} bytes",
                )
            raw = unpacked.decode("ascii")
        if count_values(raw) > MAX_VALUES:
            raise MessageRefused("size", f"the message has more than {MAX_VALUES} values")
        body = json.loads(raw, parse_constant=_no_constant)
    except (ValueError, binascii.Error, zlib.error, RecursionError) as problem:
        raise MessageRefused("form", f"the message is unreadable: {problem}") from problem
    if not isinstance(body, dict):
        raise MessageRefused("form", f"the message is {type(body).__name__}, not a JSON object")
    return body


def count_values(text: str) -> int:
    """Return at least the number of values in a JSON text, without parsing it."""
    return sum(map(text.count, ",[{"))


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")

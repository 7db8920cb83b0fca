"""Random words of a seed for exact inputs: Philox, keyed by SHA-256, as for every other regime."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

STREAM = "gonogo-exact-1"
"""The version of the streams. Changing it changes every exact input ever drawn."""


def words(seed: int, name: str, shape: tuple[int, ...]) -> Words:
    """Return random 64-bit words in `shape`; (seed, name, shape) fix them forever."""
    digest = hashlib.sha256(f"{STREAM}/{seed}/{name}".encode()).digest()
    philox = np.random.Philox(key=np.frombuffer(digest[:16], "<u8").astype(np.uint64))
    count = int(np.prod(shape))
    result: Words = philox.random_raw(count).astype(np.uint64).reshape(shape)
    return result


def choices(seed: int, name: str, shape: tuple[int, ...], count: int) -> NDArray[np.intp]:
    """Return random integers from 0 to count - 1, all as likely (to 2^-32: count is small)."""
    high = words(seed, name, shape) >> np.uint64(32)
    return ((high * np.uint64(count)) >> np.uint64(32)).astype(np.intp)


def orders(seed: int, name: str, rows: int, count: int) -> NDArray[np.intp]:
    """Return `rows` random permutations of 0 to count - 1: (rows, count)."""
    return np.argsort(words(seed, name, (rows, count)), axis=1, kind="stable")

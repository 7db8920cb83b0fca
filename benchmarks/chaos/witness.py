"""An executor that writes down what it ran, so that a stored seed can be traced to its host.

It is a plug-in of the workers. Each host's processes have a file of their own in CHAOS_WITNESS:
a line per seed, with the hash of the input x. The seeds of a run are all different, so a line names
a seed, and no message can add one.
"""

from __future__ import annotations

import hashlib
import os
import time
from typing import Any

import numpy as np
from troublesome import Troublesome

EXTRA_SEED_S = 0.4
"""Seconds by which a slow seed takes longer, so that faults meet workers at work."""


def name_of(x: np.ndarray[Any, Any]) -> str:
    """Return the line of an input."""
    return hashlib.sha256(np.ascontiguousarray(x, np.float32).tobytes()).hexdigest()[:24]


class Witness:
    """The builds of the tests' plug-in (`fine`, `slow`, `nan`), with a line for each seed."""

    def __init__(self, build: str) -> None:
        self._kernel, self._extra_s = Troublesome(build), EXTRA_SEED_S * (build == "slow")
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._file = os.open(os.environ["CHAOS_WITNESS"], flags, 0o600)

    def run(self, test: dict[str, Any], inputs: dict[str, Any]) -> Any:
        """Write the line, then run: a seed that was killed half-way has one, too."""
        os.write(self._file, f"{name_of(inputs['x'])}\n".encode())
        time.sleep(self._extra_s)
        return self._kernel.run(test, inputs)

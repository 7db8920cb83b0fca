"""Makes a new process do without numba, if this folder is on its path: Python runs this at its
start.

Each chunk of a worker has a new process for its kernels. Where they are tiny, half a second of a
core goes into loading compiled code, which gives the same bits (test_without_numba.py).
"""

from __future__ import annotations

import sys

sys.modules["numba"] = None  # type: ignore[assignment]  # None makes every import of it fail

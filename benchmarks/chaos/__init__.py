"""Chaos: a whole service of real processes under random faults, and what must hold afterwards.

`python -m benchmarks.chaos`. Each fault is a small function in `faults`; `checks` are the promises.
The servers and the environment of the processes are those of the tests.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
for _folder in ("tests/plugins", "tests/support"):
    if str(ROOT / _folder) not in sys.path:
        sys.path.insert(0, str(ROOT / _folder))

"""Mutants: small faults planted in the code, to see whether the tests near it notice."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT / "tests/support") not in sys.path:
    sys.path.insert(0, str(ROOT / "tests/support"))

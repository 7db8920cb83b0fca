"""Benchmarks. The servers and stand-ins that they start are those of the tests."""

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1] / "tests"
for _folder in ("plugins", "support", "support/hooks", "support/programs"):
    if str(TESTS / _folder) not in sys.path:
        sys.path.insert(0, str(TESTS / _folder))

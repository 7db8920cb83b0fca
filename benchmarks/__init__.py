"""Benchmarks. The servers and fake devices that they start are those of the tests."""

import sys
from pathlib import Path

SUPPORT = Path(__file__).resolve().parents[1] / "tests/support"
for _folder in (SUPPORT, SUPPORT / "hooks", SUPPORT / "programs", SUPPORT.with_name("plugins")):
    if str(_folder) not in sys.path:
        sys.path.append(str(_folder))

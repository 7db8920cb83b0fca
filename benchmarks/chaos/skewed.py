"""A gonogo command whose clock is wrong: `python -m benchmarks.chaos.skewed SECONDS COMMAND ...`.

The wall clock of this process is ahead by SECONDS, or behind. The monotonic clocks are the
machine's, as on a host whose clock was set wrong.
"""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime

import time_machine

from gonogo.cli.app import main

if __name__ == "__main__":
    there = datetime.fromtimestamp(time.time() + float(sys.argv[1]), UTC)
    sys.argv = ["gonogo", *sys.argv[2:]]
    with time_machine.travel(there, tick=True):
        main()

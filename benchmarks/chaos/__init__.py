"""Chaos: a whole service of real processes under random faults, and what must hold afterwards.

`python -m benchmarks.chaos`. `faults` is the table of faults; `checks` are the promises.
"""

import sys

from benchmarks import SUPPORT

if str(SUPPORT.with_name("plugins")) not in sys.path:
    sys.path.append(str(SUPPORT.with_name("plugins")))

"""The emulated Wormhole: kernels run by their programs, right or wrong, to the bit.

builds.py       the builds: the right kernel, and wrong ones by an edit of its graph
public_bugs.py  what wrong kernels of public reports compute
spoiling.py     faults that no graph has: spoiled outputs, registers left as they were, dead
                processes
running.py      a build's outputs, and its float64 function
"""

from gonogo.emulator.builds import Build, builds_of, has_build
from gonogo.emulator.running import ideal, run

__all__ = ["Build", "builds_of", "has_build", "ideal", "run"]

"""The emulated Wormhole: kernels run by their programs, right or wrong, to the bit.

edits.py        what is computed in the place of a kernel's values
build.py        a build: the right kernel, or a wrong one by an edit of its graph
norms.py        the wrong builds of norms
builds.py       the builds of each kernel
public_bugs.py  what wrong kernels of public reports compute
spoiling.py     faults that no graph has: spoiled outputs, registers left as they were, dead
                processes
running.py      a build's outputs, and its float64 function
"""

from gonogo.emulator.build import Build
from gonogo.emulator.builds import builds_of, has_build
from gonogo.emulator.running import ideal, run

__all__ = ["Build", "builds_of", "has_build", "ideal", "run"]

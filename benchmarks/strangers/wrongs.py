"""Wrong kernels: every fault, in one of the right arithmetics."""

from __future__ import annotations

from benchmarks.strangers import seams_wrong, statistics_wrong, stores_wrong, sums_wrong
from benchmarks.strangers.faults import Fault

WRONGS: dict[tuple[str, str], Fault] = {
    (fault.kernel, fault.name): fault
    for fault in (
        *sums_wrong.FAULTS,
        *statistics_wrong.FAULTS,
        *stores_wrong.FAULTS,
        *seams_wrong.FAULTS,  # last, so that the others keep their arithmetics
    )
}
"""(kernel, name) -> fault."""

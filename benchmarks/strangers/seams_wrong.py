"""Wrong at seams: the last block of a size of the kernel's own takes another path.

A diagnosis once knew seams between tiles of 32 only.
"""

from __future__ import annotations

import numpy as np

from benchmarks.strangers.faults import Fault, block, columns, rows, times

FW, BW = "layernorm_fw", "layernorm_bw"
ALL = slice(None)

FAULTS = (
    Fault("seam-last-12-columns-not-squared", FW, {"squares": columns(slice(-12, None))}),
    Fault("seam-last-7-columns-not-in-s2", BW, {"s2 terms": columns(slice(-7, None))}),
    Fault("seam-beta-not-in-last-5-rows", FW, {"beta": block(slice(-5, None), ALL)}),
    Fault("seam-beta-twice-in-last-5-rows", FW, {"beta": block(slice(-5, None), ALL, factor=2)}),
    Fault("seam-last-8-rows-not-in-dgamma", BW, {"dgamma terms": rows(slice(-8, None))}),
    Fault("seam-a-block-of-8-rows-twice-in-dbeta", BW, {"dbeta terms": rows(slice(8, 16), 2)}),
    Fault("seam-epsilon-added-twice", FW, {"epsilon": times(2)}),
    Fault(
        "seam-last-3-columns-not-centered",
        FW,
        {
            "centred": lambda value, work: np.concatenate(
                [value[:, :-3], work.values["x"][:, -3:]], axis=1
            )
        },
    ),
)

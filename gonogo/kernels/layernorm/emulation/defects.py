"""The named builds of the emulator: the right kernel, and mutants that a gauge must catch.

Each is a `Logic`: explicit switches on the one dataflow, never a copy of a kernel. A defect behaves
as `correct` in a kernel that it doesn't touch, or in a shape where it changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from gonogo.kernels.normalization.emulation.logic import Logic

FORWARD = "layernorm_fw"
BACKWARD = "layernorm_bw"
BOTH = (FORWARD, BACKWARD)


@dataclass(frozen=True)
class Defect:
    """One build of the emulator.

    Attributes:
        name: the build's name.
        sentence: what it does, in one line, for people.
        kernels: the kernels that it changes.
        outputs: the outputs of those that it touches.
        gauge: True for a mutant whose numbers a test must reject.
        logic: the switches.
    """

    name: str
    sentence: str
    kernels: tuple[str, ...]
    outputs: tuple[str, ...]
    logic: Logic
    gauge: bool = True

    def logic_on(self, kernel: str) -> Logic:
        """Return its switches on `kernel`; those of the right kernel where it changes nothing."""
        return self.logic if kernel in self.kernels else Logic()


_ALL = (
    Defect("correct", "The right kernel.", BOTH, (), Logic(), gauge=False),
    Defect(
        "last-two-tiles",
        "s1 sums only the last two tiles of a row.",
        (BACKWARD,),
        ("dx",),
        Logic(first_tiles="last-two"),
    ),
    Defect("double-subtract", "s1 is subtracted twice.", (BACKWARD,), ("dx",), Logic(s1_times=2)),
    Defect(
        "last-block-only",
        "s2 keeps only its last block of three tiles.",
        (BACKWARD,),
        ("dx",),
        Logic(square_tiles="last-block"),
    ),
    Defect(
        "tt-train-2025",
        "s1 is subtracted twice and s2 keeps only its last block of three tiles: "
        "what was really wrong in tt-train.",
        (BACKWARD,),
        ("dx",),
        Logic(s1_times=2, square_tiles="last-block"),
    ),
    Defect("drop-s1", "s1 is not subtracted at all.", (BACKWARD,), ("dx",), Logic(s1_times=0)),
    Defect(
        "bf16-accumulate",
        "The sums over the tiles of a row run in a 16-bit Dst: a loss of precision, not of logic.",
        BOTH,
        ("dx", "dgamma", "y", "mean", "rstd"),
        Logic(narrow_sums=True),
    ),
    Defect(
        "wrong-epsilon",
        "epsilon is a thousand times too large where the kernel makes its own rstd.",
        BOTH,
        ("y", "rstd", "dx", "dgamma"),
        Logic(epsilon_factor=1000.0),
    ),
    Defect(
        "unbiased-variance",
        "The variance divides by N - 1 where the kernel makes its own rstd.",
        BOTH,
        ("y", "rstd", "dx", "dgamma"),
        Logic(divisor="unbiased"),
    ),
    Defect(
        "gamma-shifted-tile",
        "gamma is read one tile (32 columns) too early.",
        BOTH,
        ("y", "dx"),
        Logic(change="gamma-tile"),
    ),
    Defect(
        "mask-missing",
        "The last tile isn't masked: its padding, which holds the row's first values again, "
        "enters the sums.",
        BOTH,
        ("y", "mean", "rstd", "dx"),
        Logic(mask=False),
    ),
    Defect(
        "mean-not-subtracted",
        "x^ is x rstd: the mean is not subtracted.",
        BOTH,
        ("y", "dx", "dgamma"),
        Logic(subtracted="zero"),
    ),
    Defect(
        "mean-last-tile-missing",
        "The mean leaves out the row's last tile.",
        (FORWARD,),
        ("y", "mean", "rstd"),
        Logic(first_tiles="not-last"),
    ),
    Defect(
        "dgamma-last-row-tile-missing",
        "dgamma leaves out the last tile of rows.",
        (BACKWARD,),
        ("dgamma",),
        Logic(change="dgamma-rows"),
    ),
    Defect(
        "tile-missing",
        "The row's middle tile is missing from its first sum: s1 in the backward kernel, "
        "the mean in the forward one.",
        BOTH,
        ("y", "mean", "rstd", "dx"),
        Logic(first_tiles="not-middle"),
    ),
    Defect(
        "rstd-off-1e-3",
        "rstd is 1.001 times too large where it scales the result.",
        BOTH,
        ("y", "rstd", "dx"),
        Logic(rstd_factor=1.001),
    ),
    Defect(
        "stale-register",
        "A row's first sum starts from what the previous run in the same process left in the "
        "register: right when run first, then different from run to run.",
        BOTH,
        ("y", "mean", "rstd", "dx"),
        Logic(stale=True),
    ),
    Defect(
        "power-of-two-outliers",
        "A few isolated values are twice too large: "
        "the Wormhole HiFi4 with fp32 accumulate erratum.",
        BOTH,
        ("y", "dx"),
        Logic(outliers=True),
    ),
    Defect("nan-tile", "One 32x32 tile is NaN.", BOTH, ("y", "dx"), Logic(nan_tile=True)),
    Defect(
        "hang",
        "The kernel never returns.",
        BOTH,
        ("y", "mean", "rstd", "dx", "dgamma", "dbeta"),
        Logic(fate="hang"),
        gauge=False,
    ),
    Defect(
        "crash",
        "The process dies of a segmentation fault.",
        BOTH,
        ("y", "mean", "rstd", "dx", "dgamma", "dbeta"),
        Logic(fate="crash"),
        gauge=False,
    ),
)

DEFECTS: dict[str, Defect] = {defect.name: defect for defect in _ALL}
"""Every build of the emulator by name; `correct` is among them."""

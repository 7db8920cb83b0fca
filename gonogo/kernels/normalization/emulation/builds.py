"""The emulated builds of a kind: those that all kinds share, and its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gonogo.kernels.kind import Fault
from gonogo.kernels.normalization.emulation.logic import Logic

Build = tuple[str, tuple[str, ...], Logic]
"""(sentence, the outputs that it changes, logic)."""


def shared_builds(
    right: Logic, outputs: tuple[str, ...], first: tuple[str, ...], total: str
) -> dict[str, Build]:
    """Return name -> build for the right kernel and the mutants that all kinds of kernels have.

    Args:
        right: the logic of the right kernel.
        outputs: the kernel's outputs.
        first: the outputs that the sum over `square_tiles` changes; the first is the one with rows.
        total: the name of that sum.
    """
    rows = first[:1]
    return {
        "correct": ("The right kernel.", (), right),
        "bf16-accumulate": (
            "The sums over the tiles of a row run in a 16-bit Dst: "
            "a loss of precision, not of logic.",
            outputs,
            replace(right, narrow_sums=True),
        ),
        "wrong-epsilon": (
            "epsilon is a thousand times too large where the kernel makes its own rstd.",
            outputs,
            replace(right, epsilon_factor=1000.0),
        ),
        "padded-count": (
            f"The divisor of {total} is N with its padding to whole tiles.",
            first,
            replace(right, divisor="padded"),
        ),
        "last-tile-only": (
            f"Only the last tile of a row enters {total}.",
            first,
            replace(right, square_tiles="last"),
        ),
        "last-tile-missing": (
            f"The last tile of a row doesn't enter {total}.",
            first,
            replace(right, square_tiles="not-last"),
        ),
        "tile-missing": (
            f"The middle tile of a row doesn't enter {total}.",
            first,
            replace(right, square_tiles="not-middle"),
        ),
        "mask-missing": (
            "The last tile isn't masked: its padding, which holds the row's first values again, "
            f"enters {total}.",
            first,
            replace(right, mask=False),
        ),
        "stale-partial": (
            f"Every 8th row has {total} of the row before it.",
            first,
            replace(right, stale_rows=True),
        ),
        "stale-register": (
            f"The accumulator of {total} starts from what the previous run in the same process "
            "left in the register: right when run first.",
            first,
            replace(right, stale=True),
        ),
        "rstd-off-1e-3": (
            "rstd is 1.001 times too large where it scales the result.",
            first,
            replace(right, rstd_factor=1.001),
        ),
        "gamma-shifted-tile": (
            "gamma is read one tile (32 columns) too early.",
            rows,
            replace(right, change="gamma-tile"),
        ),
        "gamma-neighbour": (
            "gamma is that of the next column.",
            rows,
            replace(right, change="gamma-next"),
        ),
        "gamma-missing": ("gamma is left out.", rows, replace(right, change="gamma-ones")),
        "power-of-two-outliers": (
            "A few isolated values are twice too large.",
            rows,
            replace(right, outliers=True),
        ),
        "nan-tile": ("One 32x32 tile is NaN.", rows, replace(right, nan_tile=True)),
        "hang": ("The kernel never returns.", outputs, replace(right, fate="hang")),
        "crash": (
            "The process dies of a segmentation fault.",
            outputs,
            replace(right, fate="crash"),
        ),
    }


def faults(builds: Mapping[str, Build], names: Sequence[str] = ()) -> dict[str, Fault]:
    """Return name -> Fault, in the order of `names`, else of the builds.

    All are known to be wrong, except `correct` and builds that return no numbers. Raises KeyError
    for a name without a build.
    """
    listed = {name: builds[name] for name in names} or builds
    return {
        name: Fault(
            name, sentence, outputs, gauge=bool(outputs) and logic.fate is None, unsure=logic.stale
        )
        for name, (sentence, outputs, logic) in listed.items()
    }

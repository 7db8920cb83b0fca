"""Right kernels: every arithmetic here is one that a real kernel uses.

Its error is rounding.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.strangers.arithmetic import Arithmetic
from benchmarks.strangers.kernels import BACKWARD_STAGES, FORWARD_STAGES
from benchmarks.strangers.sums import ORDERS

KERNELS = ("layernorm_fw", "layernorm_bw")
ALL = frozenset({*FORWARD_STAGES, *BACKWARD_STAGES})
XHAT = frozenset({"xhat"})
PRODUCTS = frozenset({"p", "px", "dgamma terms", "scaled"})
ROWS = frozenset({"mean", "variance", "rstd", "s1", "s2"})
"""One value a row."""


@dataclass(frozen=True)
class Right:
    """An arithmetic, its kernels, and whether it is right only where the mean is small.

    Small means: not large against the deviation.
    """

    arithmetic: Arithmetic
    kernels: tuple[str, ...] = KERNELS
    centred_only: bool = False
    exotic: bool = False
    """Rounding to odd, which no store of a kernel does that we know: an emulation of double
    rounding has it. Counted apart."""

    @property
    def name(self) -> str:
        """Return the name of its build."""
        return self.arithmetic.name


def _orders() -> Iterable[Right]:
    """fp32 inside, one rounding of the result; sums in every order."""
    down = list(ORDERS)
    for place, order in enumerate(ORDERS):
        yield Right(Arithmetic(f"sum-{order}", order=order, down=down[(place + 5) % len(down)]))


def _moments() -> Iterable[Right]:
    for moments, order in (
        ("one-pass", "lanes-32"),
        ("shifted", "sequential"),
        ("corrected", "tiles"),
        ("welford", "halves"),
        ("chan", "tiles"),
    ):
        yield Right(
            Arithmetic(f"moments-{moments}", order=order, moments=moments),
            centred_only=moments == "one-pass",
        )
    yield Right(
        Arithmetic("moments-welford-stored", order="faces", moments="welford", stored=XHAT | ROWS)
    )
    yield Right(
        Arithmetic("moments-one-pass-double", order="double", moments="one-pass"), centred_only=True
    )


def _rsqrts() -> Iterable[Right]:
    for name in ("newton-2", "newton-3", "sqrt-of-reciprocal", "power", "double"):
        yield Right(Arithmetic(f"rsqrt-{name}", rsqrt=name, order="lanes-16"))


def _forms() -> Iterable[Right]:
    for form, kernels in (
        ("folded", KERNELS),
        ("early", ("layernorm_fw",)),
        ("scaled", ("layernorm_bw",)),
        ("spread", ("layernorm_bw",)),
    ):
        for fused in (False, True):
            yield Right(
                Arithmetic(
                    f"form-{form}{'-fused' * fused}", form=form, fused=fused, order="lanes-8"
                ),
                kernels,
                form == "folded",
            )
    yield Right(Arithmetic("form-textbook-fused", fused=True, order="halves"))
    yield Right(Arithmetic("reciprocal-scaler", reciprocal=True, order="tiles"))
    yield Right(Arithmetic("three-passes", product="three-passes", order="tiles", stored=XHAT))


def _buffers() -> Iterable[Right]:
    """Yield kernels by what they store, and how they round it."""
    groups = {"xhat": XHAT, "products": PRODUCTS, "rows": ROWS, "all": ALL}
    for name, stored in groups.items():
        for mode in ("even", "away", "stochastic", "odd"):
            yield Right(
                Arithmetic(
                    f"stored-{name}-{mode}",
                    stored=stored,
                    buffering=mode,
                    output=mode,
                    order="tiles",
                ),
                exotic=mode == "odd",
            )
        yield Right(
            Arithmetic(f"stored-{name}-zero", stored=stored, buffering="zero", order="tiles")
        )
    yield Right(Arithmetic("stored-all-by-cores", stored=ALL, parts=8, order="lanes-32"))
    yield Right(
        Arithmetic("stored-xhat-by-cores", stored=XHAT, parts=4, order="lanes-16", buffering="away")
    )
    yield Right(
        Arithmetic(
            "stored-all-shuffled",
            stored=ALL,
            order="shuffled",
            down="shuffled",
            output="stochastic",
        )
    )
    yield Right(Arithmetic("stored-xhat-fp16", stored=XHAT, buffer="fp16"))


def _outputs() -> Iterable[Right]:
    for mode in ("away", "zero", "odd", "stochastic"):
        yield Right(
            Arithmetic(f"output-{mode}", output=mode, order="lanes-32"), exotic=mode == "odd"
        )
    yield Right(
        Arithmetic("output-zero-stored", output="zero", stored=XHAT | PRODUCTS, buffering="zero")
    )


RIGHTS: dict[str, Right] = {
    right.name: right
    for group in (_orders, _moments, _rsqrts, _forms, _buffers, _outputs)
    for right in group()
}

BASES: tuple[Arithmetic, ...] = (
    Arithmetic("plain"),
    Arithmetic("stored", stored=ALL, order="tiles"),
    Arithmetic(
        "cut", stored=XHAT, order="lanes-32", down="sequential", buffering="away", output="away"
    ),
    Arithmetic(
        "mixed", stored=ROWS | PRODUCTS, order="lanes-16", reciprocal=True, buffering="stochastic"
    ),
)
"""Right arithmetics that wrong kernels combine with one fault."""

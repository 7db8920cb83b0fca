"""Wrong statistics, terms and factors.

That is mean, variance, epsilon, rstd, gamma, beta, s1, s2 and the signs between them.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from benchmarks.strangers.arithmetic import Alteration
from benchmarks.strangers.faults import (
    FACE,
    TILE,
    Fault,
    block,
    columns,
    constant,
    instead,
    neighbour,
    plus,
    stale,
    swapped,
    times,
)
from benchmarks.strangers.moments import newton
from benchmarks.strangers.roundings import Rounding

FW, BW = "layernorm_fw", "layernorm_bw"
COARSE = Rounding("bf16", "zero")

EPSILON: dict[str, Alteration] = {
    "missing": constant(0),
    "squared": lambda value, work: value * value,
    "thousandfold": times(1000),
    "a-hundredth": constant(0.01),
    "of-keras": constant(1e-3),
}
ROW: dict[str, Alteration] = {
    "of-next-row": neighbour(-1),
    "of-first-row": lambda value, work: np.broadcast_to(value[:1], value.shape),
    "of-previous-tile-of-rows": neighbour(TILE),
    "average-of-rows": lambda value, work: np.broadcast_to(
        value.mean(0, keepdims=True), value.shape
    ),
    "reversed-in-tile": lambda value, work: np.concatenate(
        [value[start : start + TILE][::-1] for start in range(0, len(value), TILE)]
    ),
    "last-row-zero": lambda value, work: block(slice(-1, None), slice(None))(value, work),
    "odd-rows-zero": block(slice(1, None, 2), slice(None)),
    "one-percent-off": times(1.01),
    "two-percent-low": times(0.98),
    "four-per-mille-off": times(1.004),
    "of-previous-run": lambda value, work: stale("row")(value, work),
    "wrong-beyond-whole-tiles": lambda value, work: block(
        slice(len(value) // TILE * TILE, None), slice(None), factor=1.5
    )(value, work),
}
RSTD: dict[str, Alteration] = {
    "squared": lambda value, work: value * value,
    "reciprocal-variance": lambda value, work: (
        1 / work.values["radicand"] if "radicand" in work.values else value * value
    ),
    "one": constant(1),
    "deviation": lambda value, work: 1 / value,
    "newton-none": lambda value, work: newton(1 / (value * value), 0),
    "newton-1": lambda value, work: newton(1 / (value * value), 1),
    "coarse": lambda value, work: (value.view(np.uint32) & np.uint32(0xFFF00000)).view(np.float32),
}
VECTOR: dict[str, Alteration] = {
    "ones": constant(1),
    "plus-one": plus(1),
    "shifted": neighbour(1, 1),
    "shifted-by-tile": neighbour(TILE, 1),
    "shifted-by-face": neighbour(FACE, 1),
    "faces-swapped": swapped(slice(0, FACE), slice(FACE, TILE), 1),
    "down-a-tile": lambda value, work: _down_a_tile(value),
    "first-tile-everywhere": lambda value, work: value[:, np.arange(value.shape[1]) % TILE],
    "last-tile-one": lambda value, work: block(
        slice(None), slice((value.shape[1] - 1) // TILE * TILE, None), 1.0
    )(value, work),
    "reversed": lambda value, work: value[:, ::-1],
    "one-percent-off": times(1.01),
    "one-percent-off-in-a-tile": columns(slice(0, TILE), 1.01),
    "last-column-zero": columns(slice(-1, None)),
    "of-previous-run": stale("vector"),
    "four-bits": lambda value, work: (
        np.array(value, np.float32).view(np.uint32) & np.uint32(0xFFF80000)
    ).view(np.float32),
}


def _down_a_tile(value: np.ndarray) -> np.ndarray:
    """In the first tile the vector goes down the rows instead of along the columns."""
    changed = np.array(value)
    size = min(TILE, *value.shape)
    changed[:size, :size] = value[:size, :size].T
    return changed


def _named(kernel: str, stage: str, changes: dict[str, Alteration]) -> Iterable[Fault]:
    for name, alteration in changes.items():
        yield Fault(f"{stage.replace(' ', '-')}-{name}", kernel, {stage: alteration})


def _forward() -> Iterable[Fault]:
    yield from _named(FW, "epsilon", EPSILON)
    for stage in ("mean", "rstd", "variance"):
        yield from _named(FW, stage, ROW)
    yield from _named(FW, "rstd", RSTD)
    yield from _named(FW, "gamma", VECTOR)
    yield from _named(FW, "beta", VECTOR)
    n = "count"
    yield Fault(
        "variance-unbiased",
        FW,
        {"variance": lambda value, work: value * (work.values[n] / (work.values[n] - 1))},
    )
    yield Fault(
        "epsilon-outside-the-root",
        FW,
        {
            "rstd": lambda value, work: (
                1 / (np.sqrt(work.values["variance"]) + work.values["epsilon"])
            )
        },
    )
    yield Fault("epsilon-taken-off", FW, {"epsilon": times(-1)})
    yield Fault("mean-zero", FW, {"mean": constant(0)})
    yield Fault(
        "mean-not-subtracted",
        FW,
        {
            "centred": instead("x"),
            "xhat": lambda value, work: work.values["x"] * work.values["rstd"],
        },
    )
    yield Fault("mean-added", FW, {"centred": lambda value, work: value + 2 * work.values["mean"]})
    yield Fault(
        "mean-subtracted-twice", FW, {"centred": lambda value, work: value - work.values["mean"]}
    )
    yield Fault(
        "mean-coarse", FW, {"mean": lambda value, work: (COARSE(value * 8, work.chance) // 1) / 8}
    )
    yield Fault("squares-are-sizes", FW, {"squares": lambda value, work: np.sqrt(value)})
    yield Fault("squares-not-centred", FW, {"squares": lambda value, work: work.values["x"] ** 2})
    yield Fault("xhat-from-epsilon-only", FW, {"radicand": instead("epsilon")})
    yield Fault(
        "scaled-beta-inside",
        FW,
        {"scaled": lambda value, work: value + work.values["beta"] * (work.values["gamma"] - 1)},
    )
    yield Fault("beta-missing", FW, {"beta": constant(0)})
    yield Fault("beta-twice", FW, {"beta": times(2)})
    yield Fault("beta-subtracted", FW, {"beta": times(-1)})
    yield Fault(
        "beta-times-rstd",
        FW,
        {"y": lambda value, work: value + work.values["beta"] * (work.values["rstd"] - 1)},
    )
    yield Fault("gamma-is-beta", FW, {"beta": lambda value, work: work.values["gamma"]})
    yield Fault(
        "x-in-a-coarser-format",
        FW,
        {
            "x": lambda value, work: (np.array(value).view(np.uint32) & np.uint32(0xFFF80000)).view(
                np.float32
            )
        },
    )
    yield Fault(
        "large-offset-in-fp16",
        FW,
        {"x": lambda value, work: Rounding("fp16")(value + 1000, work.chance) - 1000},
    )
    yield Fault(
        "squares-overflow-in-fp16",
        FW,
        {
            "squares": lambda value, work: (
                Rounding("fp16")(value * 6e4, work.chance) / np.float32(6e4)
            )
        },
    )


def _backward() -> Iterable[Fault]:
    yield from _named(BW, "gamma", VECTOR)
    for stage in ("mean", "rstd", "s1", "s2", "rstd of dx"):
        yield from _named(BW, stage, ROW)
    yield from _named(BW, "rstd", RSTD)
    yield from _named(
        BW,
        "rstd of dx",
        {name: RSTD[name] for name in ("squared", "one", "deviation", "newton-1", "coarse")},
    )
    for stage in ("s1", "s2", "correction"):
        yield from _named(
            BW,
            stage,
            {"missing": constant(0), "sign": times(-1), "twice": times(2), "half": times(0.5)},
        )
    yield Fault("s2-without-xhat", BW, {"correction": instead("s2")})
    yield Fault(
        "s2-times-x", BW, {"correction": lambda value, work: work.values["x"] * work.values["s2"]}
    )
    yield Fault(
        "s2-times-centred",
        BW,
        {"correction": lambda value, work: work.values["centred"] * work.values["s2"]},
    )
    yield Fault("s1-of-dy", BW, {"s1 terms": instead("dy")})
    yield Fault(
        "s2-of-dy", BW, {"s2 terms": lambda value, work: work.values["dy"] * work.values["xhat"]}
    )
    yield Fault(
        "s2-of-x", BW, {"s2 terms": lambda value, work: work.values["p"] * work.values["x"]}
    )
    yield Fault("s2-of-sizes", BW, {"s2 terms": lambda value, work: np.abs(value)})
    yield Fault("s2-is-s1", BW, {"s2": instead("s1")})
    yield Fault("s1-over-n-again", BW, {"s1": lambda value, work: value / work.values["count"]})
    yield Fault("s2-over-n-again", BW, {"s2": lambda value, work: value / work.values["count"]})
    yield Fault("s1-not-over-n", BW, {"s1": lambda value, work: value * work.values["count"]})
    yield Fault("p-without-gamma", BW, {"p": instead("dy")})
    yield Fault("p-of-dx-without-gamma", BW, {"p of dx": instead("dy")})
    yield Fault("p-of-dx-one-percent-off", BW, {"p of dx": times(1.01)})
    yield Fault("p-of-dx-four-per-mille-off", BW, {"p of dx": times(1.004)})
    yield Fault("gamma-twice", BW, {"p": lambda value, work: value * work.values["gamma"]})
    yield Fault(
        "xhat-not-centred", BW, {"xhat": lambda value, work: work.values["x"] * work.values["rstd"]}
    )
    yield Fault("xhat-without-rstd", BW, {"xhat": instead("centred")})
    yield Fault("xhat-is-x", BW, {"xhat": instead("x")})
    yield Fault(
        "xhat-plus-mean", BW, {"centred": lambda value, work: value + 2 * work.values["mean"]}
    )
    yield Fault("xhat-clipped", BW, {"xhat": lambda value, work: np.clip(value, -1, 1)})
    yield Fault("dgamma-of-p", BW, {"dgamma terms": instead("px")})
    yield Fault(
        "dgamma-of-x",
        BW,
        {"dgamma terms": lambda value, work: work.values["dy"] * work.values["x"]},
    )
    yield Fault(
        "dgamma-of-centred",
        BW,
        {"dgamma terms": lambda value, work: work.values["dy"] * work.values["centred"]},
    )
    yield Fault("dgamma-is-dbeta", BW, {"dgamma terms": instead("dy")})
    yield Fault("dbeta-is-dgamma", BW, {"dbeta terms": instead("dgamma terms")})
    yield Fault("dbeta-of-p", BW, {"dbeta terms": instead("p")})
    yield Fault("dbeta-of-dx", BW, {"dbeta terms": instead("dx")})
    yield Fault("dy-shifted", BW, {"dy": neighbour(1, 1)})
    yield Fault("dy-of-next-row", BW, {"dy": neighbour(1)})


FAULTS = (*_forward(), *_backward())

"""Test inputs as data: kinds of kernels, shapes, regimes, formats and seeds.

An input depends on its case and its seed only. NumPy draws it in this process, and it is rounded
once to the case's format, so every library receives the same values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.libraries import exact
from gonogo.arithmetic.formats import round_to

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Tensors = dict[str, Floats]

FORMATS: Final = ("fp32", "bf16", "fp16")
SIGNIFICANT_BITS: Final[Mapping[str, int]] = {"fp32": 24, "bf16": 8, "fp16": 11}
SEEDS: Final = 8
"""Seeds 0..7: a test has at most so many."""
TILE: Final = 32
STREAM: Final = "libraries-1"
"""The version of the random streams: another one draws other inputs."""


@dataclass(frozen=True)
class Kind:
    """A function that libraries implement, with its tensors and the usual epsilon."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    epsilon: float


KINDS: Final[Mapping[str, Kind]] = {
    kind.name: kind
    for kind in (
        Kind("layernorm_fw", ("x", "gamma", "beta"), ("y",), 1e-5),
        Kind("layernorm_bw", ("x", "gamma", "dy"), ("dx", "dgamma", "dbeta"), 1e-5),
        Kind("rmsnorm_fw", ("x", "gamma"), ("y",), 1e-6),
        Kind("rmsnorm_bw", ("x", "gamma", "dy"), ("dx", "dgamma"), 1e-6),
        Kind("groupnorm_fw", ("x", "gamma", "beta"), ("y",), 1e-5),
    )
}


@dataclass(frozen=True)
class Draw:
    """The distribution of one tensor.

    form: normal (mean + std z); positive (mean + std abs(z)); hot_tile (normal, and `peak` in
    the third tile of 32 columns, or in the last one); ramp (from mean to mean + std along the
    row, each row scaled by a power of two); exact-x, exact-gamma, exact-beta (see exact.py).
    """

    form: str = "normal"
    mean: float = 0.0
    std: float = 1.0
    peak: float = 0.0


UNIT: Final = Draw()
NEAR_ONE: Final = Draw(mean=1.0, std=0.1)
SLIGHT: Final = Draw(std=0.1)


def _regime(
    x: Draw = UNIT, dy: Draw = UNIT, gamma: Draw = NEAR_ONE, beta: Draw = SLIGHT
) -> Mapping[str, Draw]:
    return {"x": x, "dy": dy, "gamma": gamma, "beta": beta}


REGIMES: Final[Mapping[str, Mapping[str, Draw]]] = {
    "normal": _regime(),
    "random-gamma": _regime(gamma=UNIT, beta=UNIT),
    "offset-3": _regime(x=Draw(mean=3.0), gamma=UNIT, beta=UNIT),
    "offset-100": _regime(x=Draw(mean=100.0)),
    "small": _regime(x=Draw(std=1e-3), dy=Draw(std=0.1)),
    "large": _regime(x=Draw(std=200.0), gamma=UNIT),
    "hot-tile": _regime(x=Draw("hot_tile", peak=20.0)),
    "ramp": _regime(x=Draw("ramp", mean=-1.0, std=3.0), gamma=UNIT),
    "exact": _regime(x=Draw("exact-x"), gamma=Draw("exact-gamma"), beta=Draw("exact-beta")),
    "one-sign-dy": _regime(dy=Draw("positive"), gamma=Draw("positive", mean=0.5)),
}

LAYOUTS: Final[Mapping[tuple[int, ...], tuple[str, ...]]] = {
    (8, 17): ("normal", "offset-3", "one-sign-dy"),
    (33, 33): ("normal", "offset-100", "ramp"),
    (16, 256): ("normal", "small", "random-gamma"),
    (64, 300): ("hot-tile", "one-sign-dy"),
    (32, 1024): ("random-gamma", "large"),
}
"""Rows and features -> the regimes that run on them."""

EXACT_SHAPES: Final = ((32, 64), (16, 256))
"""Rows and features of the regime `exact`, which EXACT_KINDS have."""
EXACT_KINDS: Final = ("layernorm_fw", "rmsnorm_bw")

GROUPED_LAYOUTS: Final[Mapping[tuple[int, ...], tuple[str, ...]]] = {
    (2, 64, 4, 4): ("normal", "offset-3"),
    (3, 33, 31): ("normal", "offset-100"),
    (1, 12, 300): ("normal", "small"),
    (2, 32, 8, 8): ("random-gamma", "large"),
    (2, 8, 16, 33): ("random-gamma", "ramp"),
}
"""Samples, channels and extents -> the regimes that run on them."""

GROUPS: Final[Mapping[int, int]] = {64: 8, 33: 3, 32: 4, 12: 4, 8: 2}
"""Channels -> groups."""


@dataclass(frozen=True)
class Case:
    """A kind on a shape, with a regime and a format."""

    kind: str
    shape: tuple[int, ...]
    regime: str
    format: str
    fixed_epsilon: float | None = None
    """The epsilon of a kernel that takes none."""

    @property
    def name(self) -> str:
        """The name in tables and in commands that replay a run."""
        return f"{self.kind}-{'x'.join(map(str, self.shape))}-{self.regime}-{self.format}"

    @property
    def epsilon(self) -> float:
        """The epsilon of the function."""
        return KINDS[self.kind].epsilon if self.fixed_epsilon is None else self.fixed_epsilon

    @property
    def groups(self) -> int:
        """The number of groups of channels; 0 for a kernel without groups."""
        return GROUPS[self.shape[1]] if self.kind == "groupnorm_fw" else 0

    @property
    def matrix(self) -> tuple[int, int]:
        """Rows that are normalized, and the elements of a row."""
        if self.groups:
            rows = self.shape[0] * self.groups
            return rows, prod(self.shape) // rows
        return prod(self.shape[:-1]), self.shape[-1]

    @property
    def channels(self) -> int:
        """The length of gamma."""
        return self.shape[1] if self.groups else self.shape[-1]


def cases(kind: str | None = None, number_format: str | None = None) -> Iterator[Case]:
    """Yield every case, or those of one kind or format."""
    formats = FORMATS if number_format is None else (number_format,)
    for kind_name in KINDS if kind is None else (kind,):
        layouts = GROUPED_LAYOUTS if kind_name == "groupnorm_fw" else LAYOUTS
        for shape, regimes in layouts.items():
            for regime in regimes:
                if regime == "one-sign-dy" and "dy" not in KINDS[kind_name].inputs:
                    continue
                for form in formats:
                    yield Case(kind_name, shape, regime, form)
        if kind_name in EXACT_KINDS:
            for shape in EXACT_SHAPES:
                for form in formats:
                    yield Case(kind_name, shape, "exact", form)


def case_named(name: str) -> Case:
    """Return the case of a name. Raises ValueError for an unknown one."""
    kind, shape, rest = name.split("-", 2)
    regime, _, number_format = rest.rpartition("-")
    case = Case(kind, tuple(int(part) for part in shape.split("x")), regime, number_format)
    if kind not in KINDS or regime not in REGIMES or number_format not in FORMATS:
        raise ValueError(f"there is no case {name!r}; for example: {next(cases()).name}")
    return case


@lru_cache(maxsize=64)
def inputs(case: Case, seed: int) -> Tensors:
    """Return the tensors of a seed: float32 arrays whose values the case's format represents.

    x and dy have the case's shape, gamma and beta (channels,). Don't change them: they are cached.
    """
    if case.regime == "exact" and case.kind == "rmsnorm_bw":
        return _exact_gradients(case, seed)
    tensors: Tensors = {}
    for name in KINDS[case.kind].inputs:
        draw = REGIMES[case.regime][name]
        if name in ("x", "dy"):
            values = _drawn(draw, case.matrix, seed, name, case.format).reshape(case.shape)
        else:
            row = _drawn(draw, (1, case.channels), seed, name, case.format)
            values = row.reshape(case.channels)
        tensors[name] = narrowed(values, case.format)
        tensors[name].flags.writeable = False
    return tensors


def narrowed(values: NDArray[Any], number_format: str) -> Floats:
    """Return values rounded once to a format, as float32."""
    return round_to(values, number_format).astype(np.float32)


def _exact_gradients(case: Case, seed: int) -> Tensors:
    """Return tensors of the regime `exact` that are drawn together."""
    bits = SIGNIFICANT_BITS["bf16" if case.format == "fp32" else case.format]
    drawn = exact.gradients(case.matrix, case.format, bits, _generator(seed, "gradients"))
    tensors = {name: narrowed(drawn[name], case.format) for name in KINDS[case.kind].inputs}
    tensors["gamma"] = tensors["gamma"].reshape(case.channels)
    for values in tensors.values():
        values.flags.writeable = False
    return tensors


def _drawn(draw: Draw, shape: tuple[int, int], seed: int, name: str, number_format: str) -> Doubles:
    rows, features = shape
    generator = _generator(seed, name)
    match draw.form:
        case "normal":
            return draw.mean + draw.std * generator.standard_normal(shape)
        case "positive":
            return draw.mean + draw.std * np.abs(generator.standard_normal(shape))
        case "hot_tile":
            values = draw.mean + draw.std * generator.standard_normal(shape)
            start = min(2 * TILE, (features - 1) // TILE * TILE)
            values[:, start : start + TILE] = draw.peak
            return values
        case "ramp":
            steps = draw.mean + draw.std * np.arange(features) / max(features - 1, 1)
            return np.outer(np.exp2(np.arange(rows) % 4), steps)
        case "exact-x":
            return exact.rows(shape, number_format, generator)
        case "exact-gamma":
            return exact.gammas(features, generator)
        case "exact-beta":
            return exact.betas(features, SIGNIFICANT_BITS[number_format], generator)
    raise ValueError(f"there is no form {draw.form!r}")


def _generator(seed: int, name: str) -> np.random.Generator:
    digest = hashlib.sha256(f"{STREAM}/{seed}/{name}".encode()).digest()
    key = np.frombuffer(digest[:16], "<u8").astype(np.uint64)
    return np.random.Generator(np.random.Philox(key=key))


def inputs_digest(case: Case, seed: int) -> str:
    """Return a hash of the bytes of a seed's tensors, for the cache of outputs."""
    digest = hashlib.sha256()
    for name, values in sorted(inputs(case, seed).items()):
        digest.update(f"{name}{values.shape}".encode())
        digest.update(np.ascontiguousarray(values, "<f4").tobytes())
    return digest.hexdigest()[:16]

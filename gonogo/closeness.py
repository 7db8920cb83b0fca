"""Two arrays and a declared tolerance: the numbers, which comparators hold, and how loose it is.

Nothing here knows a kernel: it says red or green, and never why. NumPy only; it runs in other
people's interpreters (Python 3.10).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Numbers = dict[str, Any]

__tracebackhide__ = True
"""pytest shows the line of the test that called gonogo.compare, and none of ours."""

NEEDED_RTOLS = (0.0, 1e-5, 1e-3, 1e-2, 1.6e-2, 1e-1)
"""The relative tolerances for which the needed absolute one is stored: a test with one of them can
be judged again without the output."""
FORMATS: dict[str, tuple[int, int, float]] = {
    "fp64": (53, -1022, math.inf),
    "fp32": (24, -126, (2 - 2.0**-23) * 2.0**127),
    "bf16": (8, -126, (2 - 2.0**-7) * 2.0**127),
    "fp16": (11, -14, 65504.0),
    "bfp8_b": (7, -126, math.inf),
    "fp8_e4m3": (4, -6, 448.0),
    "fp8_e5m2": (3, -14, 57344.0),
}
"""A format's bits of precision, the exponent of its smallest normal number, and the largest one."""
BLOCK = 16
"""Values along the last axis that share an exponent in bfp8_b."""
NEAR_POWER = 2.0**-6
"""How near a value is to a power of two times another: the erratum of a Wormhole's HiFi4."""
CONSTANT, CANCELED = 2.0**-50, 2.0**-44
"""The deviation of values that are constant, relative to the largest; and the share of a difference
of sums below which it is rounding."""
DEFAULTS: dict[str | None, tuple[float, float]] = {
    "fp16": (1e-3, 1e-5),
    "bf16": (1.6e-2, 1e-5),
    "fp32": (1.3e-6, 1e-5),
    "fp64": (1e-7, 1e-7),
    None: (0.0, 0.0),
}
"""(rtol, atol) where a test declares nothing.

They are those of torch.testing.assert_close, by the output's dtype.
"""


@dataclass(frozen=True)
class Gate:
    """The comparators that a test declares; None = not declared.

    They are those of gonogo.spec.tolerances.Tolerance, with the same meanings.
    """

    rtol: float | None = None
    atol: float | None = None
    pcc: float | None = None
    frobenius: float | None = None
    ulp: float | None = None
    equal_nan: bool = False

    def __post_init__(self) -> None:
        for name in ("rtol", "atol", "frobenius", "ulp", "pcc"):
            value = getattr(self, name)
            if value is not None and not (
                math.isfinite(value)
                and (name == "pcc" or value >= 0)
                and (name != "pcc" or -1 <= value <= 1)
            ):
                allowed = "between -1 and 1" if name == "pcc" else "a number from 0"
                raise ValueError(f"{name} must be {allowed}; got {value!r}")

    @property
    def declared(self) -> bool:
        """True where there is any comparator."""
        return any(
            value is not None
            for value in (self.rtol, self.atol, self.pcc, self.frobenius, self.ulp)
        )

    @property
    def allclose(self) -> tuple[float, float] | None:
        """(rtol, atol), or None when neither is declared."""
        return (
            None
            if self.rtol is None and self.atol is None
            else (self.rtol or 0.0, self.atol or 0.0)
        )

    def to_json(self) -> dict[str, float]:
        """Return the declared comparators, as the tolerance of a test (docs/spec.md)."""
        rtol_atol = (
            {} if self.allclose is None else dict(zip(("rtol", "atol"), self.allclose, strict=True))
        )
        rest = {
            name: value
            for name in ("pcc", "frobenius", "ulp")
            if (value := getattr(self, name)) is not None
        }
        return {name: float(value) for name, value in {**rtol_atol, **rest}.items()}


@np.errstate(all="ignore")  # a stranger's tests may turn warnings into errors
def numbers(actual: NDArray[Any], expected: NDArray[Any], gate: Gate, form: str | None) -> Numbers:
    """Return the statistics of `actual` against `expected` (equal shapes), in float64.

    Their names are those of docs/verdicts.md. form: the output's number format (None: whole
    numbers, which have no ulp). Values that are NaN in both (with equal_nan), or the same infinity
    in both, are equal. Every other value that isn't finite on one side counts as `nonfinite`. A
    metric is null where it is undefined, or infinite, as `nonfinite_statistics` says.
    """
    a, r = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    finite = np.isfinite(a) & np.isfinite(r)
    same = (a == r) | (np.isnan(a) & np.isnan(r) if gate.equal_nan else False)
    odd = ~finite & ~same
    result: Numbers = {"count": int(a.size), "nonfinite": int(odd.sum())}
    if odd.any():
        kinds = {
            "nan": int((odd & np.isnan(a)).sum()),
            "+inf": int((odd & (a == np.inf)).sum()),
            "-inf": int((odd & (a == -np.inf)).sum()),
        }
        result["nonfinite_kinds"] = {kind: count for kind, count in kinds.items() if count} or {
            "expected": int(odd.sum())
        }
        result["worst_index"] = _place(int(np.argmax(odd)), a.shape)
    if not finite.any():
        return storable(result)
    out, ref = a[finite], r[finite]
    error = out - ref
    size, magnitude = np.abs(error), np.abs(ref)
    norm, off = float(np.sqrt((ref**2).sum())), float(np.sqrt((error**2).sum()))
    result |= {
        "max_abs": float(size.max()),
        "mean_abs": float(size.mean()),
        "rms": float(np.sqrt((error**2).mean())),
        "rel_frobenius": _ratio(off, norm),
        "pcc_deficit": pcc_deficit(ref, error),
        "needed_atol": {
            rtol: float(np.maximum((size - rtol * magnitude).max(), 0.0)) for rtol in NEEDED_RTOLS
        },
        "tolerance_ratio": None,
    }
    if form is not None:
        golden = rounded(ref, form)
        distance = np.abs(out - golden) / step(golden, form)
        p99 = np.ceil(np.quantile(distance, 0.99, method="inverted_cdf"))
        result |= {"ulp_max": float(distance.max()), "ulp_p99": float(p99)}
    ratios = size
    if gate.allclose is not None:
        rtol, atol = gate.allclose
        ratios = np.where(size == 0, 0.0, size / (atol + rtol * magnitude))
        result["tolerance_ratio"] = float(ratios.max())
        result["outside"] = int((ratios > 1).sum()) + int(odd.sum())
    if not odd.any():
        result["worst_index"] = _place(int(np.flatnonzero(finite)[int(np.argmax(ratios))]), a.shape)
    return storable(result)


def storable(statistics: Mapping[str, Any]) -> Numbers:
    """Return statistics with null for what isn't finite, which `nonfinite_statistics` names.

    JSON has no NaN and no Inf.
    """
    infinite = {
        name: "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
        for name, value in statistics.items()
        if isinstance(value, float) and not math.isfinite(value)
    }
    stored = {name: None if name in infinite else value for name, value in statistics.items()}
    needed = stored.get("needed_atol")
    if needed is not None:
        stored["needed_atol"] = {
            repr(rtol): atol if math.isfinite(atol) else None for rtol, atol in needed.items()
        }
    return stored | ({"nonfinite_statistics": infinite} if infinite else {})


def missed(gate: Gate, statistics: Numbers) -> list[str]:
    """Return which comparators don't hold, each in words; an empty list is green.

    An undefined metric doesn't hold, unless nothing differs.
    """
    words = []
    if statistics["nonfinite"]:
        kinds = ", ".join(
            f"{count} {kind}" for kind, count in statistics["nonfinite_kinds"].items()
        )
        share = f"{statistics['nonfinite']} of {statistics['count']} values"
        words.append(f"{share} are not finite on one side only ({kinds})")
    if "max_abs" not in statistics or statistics["max_abs"] == 0:
        return words
    ratio = statistics["tolerance_ratio"]
    if gate.allclose is not None and not (ratio is not None and ratio <= 1):
        share = f"{statistics['outside']} of {statistics['count']} values"
        times = "infinite" if ratio is None else f"{ratio:.3g}"
        rtol, atol = gate.allclose
        words.append(f"{share} outside rtol {rtol:g}, atol {atol:g} (tolerance ratio {times})")
    if gate.pcc is not None:
        deficit = statistics["pcc_deficit"]
        if deficit is None:
            words.append("PCC is undefined: one of the two is constant")
        elif not 1 - deficit >= gate.pcc:
            words.append(f"PCC {1 - deficit:.6g} below {gate.pcc:g}")
    relative = statistics["rel_frobenius"]
    if gate.frobenius is not None and not (relative is not None and relative <= gate.frobenius):
        size = "infinite" if relative is None else f"{relative:.3g}"
        words.append(f"relative Frobenius {size} above {gate.frobenius:g}")
    if gate.ulp is not None and not statistics.get("ulp_max", math.inf) <= gate.ulp:
        words.append(f"{statistics.get('ulp_max', math.nan):.4g} ULP above {gate.ulp:g}")
    return words


@np.errstate(all="ignore")
def roundings(expected: NDArray[Any], gate: Gate, form: str | None) -> dict[str, Any] | None:
    """Return how many times the output format's own rounding the tolerance is.

    None where the format, or a comparator, is unknown. The own rounding of a value is half an ulp,
    h. "times" is the strictest comparator's. For rtol and atol it is the median over the values
    that aren't 0 of (atol + rtol |ref|) / h. `least` is the same at the value where it is smallest:
    below 1 a right kernel can fail. PCC and Frobenius are compared with the effect of rounding
    alone, noise of variance h^2/3. 1 - PCC = mean(h^2/3) / (2 var(ref)), of which the root is
    taken, because it is an amplitude. |e| / |ref| = sqrt(mean(h^2/3) / mean(ref^2)). An ULP is two
    h.
    """
    values = np.asarray(expected, np.float64)
    values = (
        values[np.isfinite(values)]
        if form != "bfp8_b"
        else np.where(np.isfinite(values), values, 0.0)
    )
    if form is None or not gate.declared or not values.any():
        return None
    half_ulps = step(values, form) / 2
    noise, nonzero = float((half_ulps**2).mean()) / 3, values != 0
    by: dict[str, float] = {}
    least = None
    if gate.allclose is not None:
        rtol, atol = gate.allclose
        times = ((atol + rtol * np.abs(values)) / half_ulps)[nonzero]
        by["allclose"], least = float(np.median(times)), float(times.min())
    if gate.pcc is not None and (spread := float(values.var())) > 0:
        by["pcc"] = math.sqrt(max(0.0, 1 - gate.pcc) / (noise / (2 * spread)))
    if gate.frobenius is not None:
        by["frobenius"] = gate.frobenius / math.sqrt(noise / float((values**2).mean()))
    if gate.ulp is not None:
        by["ulp"] = 2 * gate.ulp
    by = {name: value for name, value in by.items() if math.isfinite(value)}
    if not by:
        return None
    return {
        "format": form,
        "times": min(by.values()),
        "least": least if least is not None and math.isfinite(least) else None,
        "by": by,
    }


def step(values: Array, form: str) -> Array:
    """Return the distance between neighbors of a format at each value (above a power of two)."""
    precision, lowest, _ = FORMATS[form]
    size = np.abs(np.asarray(values, np.float64))
    if form == "bfp8_b" and size.size:
        shaped = np.atleast_1d(size)
        tops = np.maximum.reduceat(shaped, np.arange(0, shaped.shape[-1], BLOCK), axis=-1)
        size = np.repeat(tops, BLOCK, axis=-1)[..., : shaped.shape[-1]].reshape(size.shape)
    exponents = np.where(size > 0, np.frexp(size)[1] - 1, lowest)
    return np.asarray(np.ldexp(1.0, np.maximum(exponents, lowest) + 1 - precision))


def rounded(values: Array, form: str) -> Array:
    """Return finite values rounded to nearest even in a format."""
    if form == "fp64":
        return values
    steps = step(values, form)
    if form == "bfp8_b":  # rounding up doesn't change the shared exponent
        most = 2.0 ** FORMATS[form][0] - 1
        return np.asarray(np.clip(np.rint(values / steps), -most, most) * steps)
    result = np.rint(values / steps) * steps
    return np.where(np.abs(result) > FORMATS[form][2], np.copysign(np.inf, values), result)


def pcc_deficit(reference: Array, error: Array) -> float | None:
    """Return 1 less Pearson's correlation of reference + error with the reference.

    With b = reference and d = error, both about their means, and a = b + d, it is
    (|d|^2 - (|a| - |b|)^2) / (2 |a| |b|), where |a| - |b| = (2 b d + |d|^2) / (|a| + |b|). None
    where one of them is constant.
    """
    b, d = reference - reference.flat[0], error - error.mean()
    b = b - b.mean()
    dd, bb, bd = (float((x * y).sum()) for x, y in ((d, d), (b, b), (b, d)))
    return pcc_deficit_of(dd, bb, bd, b.size * (float(np.abs(reference).max()) * CONSTANT) ** 2)


def is_near_power(values: Array, exact: Array) -> NDArray[np.bool_]:
    """Return where values are near a power of two times the exact ones, other than 1."""
    with np.errstate(divide="ignore", invalid="ignore"):
        multiple = np.abs(values / exact)
        power = np.rint(np.log2(multiple))
        near: NDArray[np.bool_] = (power != 0) & (np.abs(multiple / 2.0**power - 1) < NEAR_POWER)
    return near


def pcc_deficit_of(dd: float, bb: float, bd: float, floor: float) -> float | None:
    """Return `pcc_deficit` from the sums of d^2, b^2 and b d.

    floor: the b^2 of a reference that is constant but for rounding.
    """
    aa = bb + 2 * bd + dd
    if not bb > floor or not aa > max(floor, (bb + dd) * CANCELED):
        return None
    gap = (2 * bd + dd) / (math.sqrt(aa) + math.sqrt(bb))
    return max(0.0, (dd - gap**2) / (2 * math.sqrt(aa * bb)))


def _place(flat: int, shape: tuple[int, ...]) -> list[int]:
    return [int(index) for index in np.unravel_index(flat, shape)] if shape else []


def _ratio(numerator: float, denominator: float) -> float:
    if denominator == 0:
        return 0.0 if numerator == 0 else math.inf
    return numerator / denominator

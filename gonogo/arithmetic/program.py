"""Programs: how a kernel's implementation computes, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self, get_args

from gonogo.arithmetic.formats import format_and_mode, format_named
from gonogo.arithmetic.sums import Order, totals_of

DIVISOR = ".divisor"
"""Behind a mean's key: the reciprocal of its count, where a kernel stores that and multiplies."""
TOTAL = ".total"
"""Behind a sum's or a mean's key: the totals that it stores after each addition."""
EXACT = "exact"
"""The rule of an operation that rounds nothing."""
ROUNDED = "rounded"
"""The rule of an operation that is known to round once, to nearest fp32."""
RULES = (EXACT, ROUNDED)
ROUNDINGS = {"even": "", "away": ", ties away from zero", "zero": ", truncated"}
"""How a store rounds, in words."""


@dataclass(frozen=True)
class Program:
    """An arithmetic as data.

    Attributes:
        stored: the format of each stored value by its node's key, such as "bf16" or "bf16/away";
            parameters too, a mean's divisor as "mean.divisor" and a sum's totals as "sum.total".
        order: how sums are added; see sums.fp32_sum.
        totals: how those are added whose totals are stored; see sums.totals_of.
        rules: how single elementwise operations round, by their nodes' keys: one of RULES. Others
            have noise.
        narrow: a format in which any operation may be stored, nobody knows which: only noise.
        narrow_sums: whether the running totals of sums may be, too: that explains nearly anything.
        flush: whether subnormal numbers become 0.
    """

    stored: Mapping[str, str] = field(default_factory=dict)
    order: Order = "blocked"
    totals: str = "running"
    rules: Mapping[str, str] = field(default_factory=dict)
    narrow: str | None = None
    narrow_sums: bool = False
    flush: bool = False

    def __post_init__(self) -> None:
        for stored in self.stored.values():
            format_and_mode(stored)
        totals_of(self.totals)
        for key, rule in self.rules.items():
            if rule not in RULES:
                raise ValueError(f"rule {rule!r} of {key} is not one of {', '.join(RULES)}")
        if self.order not in get_args(Order):
            raise ValueError(f"order {self.order!r} is not one of {', '.join(get_args(Order))}")
        if self.narrow is not None:
            format_named(self.narrow)
        elif self.narrow_sums:
            raise ValueError("narrow_sums needs the format of the totals, narrow")

    def __hash__(self) -> int:
        return hash((frozenset(self.stored.items()), frozenset(self.rules.items()), self.order))

    @property
    def is_unknown_order(self) -> bool:
        """Whether it says only how large the noise of an implementation may be."""
        return self.narrow is not None

    @property
    def label(self) -> str:
        """A few words for people, such as "xhat in bf16, running sums"."""
        if self.narrow:
            sums_too = " and sums" if self.narrow_sums else ""
            return f"{self.narrow} operations{sums_too} in an unknown order"
        by_format: dict[str, list[str]] = {}
        for key, stored in self.stored.items():
            by_format.setdefault(stored, []).append(key)
        parts = []
        for stored, keys in by_format.items():
            form, mode = format_and_mode(stored)
            parts.append(f"{', '.join(keys)} in {form}{ROUNDINGS[mode]}")
        parts.append(f"{self.order} sums")
        if self.totals != "running":
            parts.append(f"stored totals in {self.totals}")
        if self.rules:
            parts.append(f"{len(self.rules)} operations known to the bit")
        if self.flush:
            parts.append("subnormal numbers flushed to 0")
        return "; ".join(parts)

    def to_data(self) -> dict[str, Any]:
        """Return the program as plain data for JSON, without what is as usual."""
        data = {
            "stored": dict(self.stored),
            "order": self.order,
            "totals": self.totals,
            "rules": dict(self.rules),
            "narrow": self.narrow,
            "narrow_sums": self.narrow_sums,
            "flush": self.flush,
        }
        return {name: value for name, value in data.items() if value}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Return the program of plain data. Raises ValueError for what is no program."""
        try:
            return cls(**data)
        except (AttributeError, TypeError) as problem:
            raise ValueError(f"the data is no program: {problem}") from problem

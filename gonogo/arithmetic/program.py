"""Programs: how a kernel's implementation computes, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self, get_args

from gonogo.arithmetic.formats import format_named, steps_of
from gonogo.arithmetic.sums import Order, totals_of
from gonogo.arithmetic.wormhole import Rule
from gonogo.graph import Node

DIVISOR = ".divisor"
"""Behind a mean's key: the reciprocal of its count, where a kernel stores that and multiplies."""
TOTAL = ".total"
"""Behind a sum's or a mean's key: the totals that it stores after each addition."""
USE = "@"
"""Between a value's key and its user's: the value as that one reads it."""
ROUNDINGS = {"even": "", "away": ", ties away from zero", "zero": ", truncated"}
"""How a store rounds, in words."""


@dataclass(frozen=True)
class Program:
    """An arithmetic as data.

    Attributes:
        stored: the format of each stored value by its node's key, such as "bf16" or "bf16/away";
            parameters too, a mean's divisor as "mean.divisor", a sum's totals as "sum.total", and
            a value for one of its uses as "rstd@xhat".
        order: how sums are added; see sums.fp32_sum.
        totals: how those are added whose totals are stored; see sums.totals_of.
        rules: how single operations compute, by their nodes' keys. Others have noise.
        narrow: a format in which any operation may be stored, nobody knows which: only noise.
        narrow_sums: whether the running totals of sums may be, too: that explains nearly anything.
        flush: whether subnormal numbers become 0.
        is_of_card: whether orders within sums, and last bits of functions, are known in size only,
            as those of a real card are: its firmware may have others than the emulator.
        name: what people call it; "": its label lists what it does.
    """

    stored: Mapping[str, str] = field(default_factory=dict)
    order: Order = "blocked"
    totals: str = "running"
    rules: Mapping[str, Rule] = field(default_factory=dict)
    narrow: str | None = None
    narrow_sums: bool = False
    flush: bool = False
    is_of_card: bool = False
    name: str = ""

    def __post_init__(self) -> None:
        for stored in self.stored.values():
            steps_of(stored)
        totals_of(self.totals)
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

    @cached_property
    def is_tensix(self) -> bool:
        """Whether a Tensix core runs it: values are fp32 then, or narrower."""
        return any(rule.is_tensix for rule in self.rules.values())

    def is_exact(self, node: Node) -> bool:
        """Return whether a node's value is only part of an operation, such as a root of rsqrt."""
        rule = self.rules.get(node.key)
        return rule is not None and rule.unit == "exact"

    def computes_alike(self, node: Node, other: Program) -> bool:
        """Return whether another program computes a node alike from the same arguments."""
        if self is other:
            return True
        uses = [arg.key + USE + node.key for arg in node.args]
        keys = (node.key, node.key + DIVISOR, node.key + TOTAL, *uses)
        return (
            all(self.stored.get(key) == other.stored.get(key) for key in keys)
            and self.rules.get(node.key) == other.rules.get(node.key)
            and self._for_all == other._for_all
        )

    @cached_property
    def _for_all(self) -> tuple[Any, ...]:
        """The part that holds for all nodes."""
        return (
            self.order, self.totals, self.narrow, self.narrow_sums, self.flush, self.is_tensix,
            self.is_of_card,
        )  # fmt: skip

    def before_last_rounding(self, key: str) -> Program:
        """Return the program without a value's last rounding, if that is to nearest.

        An output's cells stand for it: what was rounded says more than the result.
        """
        *steps, last = self.stored.get(key, "/zero").split("+")
        if last.endswith("/zero"):
            return self
        stored = {name: store for name, store in self.stored.items() if name != key}
        return replace(self, stored=stored | ({key: "+".join(steps)} if steps else {}))

    def tensix_rule(self, node: Node) -> Rule | None:
        """Return how a Tensix core computes a node; None if the program doesn't say."""
        rule = self.rules.get(node.key)
        return rule if rule is not None and rule.is_tensix else None

    @property
    def label(self) -> str:
        """A few words for people, such as "xhat in bf16, running sums"."""
        if self.name:
            return self.name
        if self.narrow:
            sums_too = " and sums" if self.narrow_sums else ""
            return f"{self.narrow} operations{sums_too} in an unknown order"
        by_format: dict[str, list[str]] = {}
        for key, stored in self.stored.items():
            by_format.setdefault(stored, []).append(key)
        parts = []
        for stored, keys in by_format.items():
            form, mode = steps_of(stored)[-1]
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
            "rules": {key: rule.to_data() for key, rule in self.rules.items()},
            "narrow": self.narrow,
            "narrow_sums": self.narrow_sums,
            "flush": self.flush,
            "is_of_card": self.is_of_card,
            "name": self.name,
        }
        return {name: value for name, value in data.items() if value}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Return the program of plain data. Raises ValueError for what is no program."""
        try:
            rules = {key: Rule(**rule) for key, rule in data.get("rules", {}).items()}
            return cls(**{**data, "rules": rules})
        except (AttributeError, TypeError) as problem:
            raise ValueError(f"the data is no program: {problem}") from problem


NOTHING_STORED = Program()
"""The program that keeps all values in fp32."""

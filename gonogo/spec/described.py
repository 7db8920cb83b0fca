"""Enums whose members say what they mean."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Self


@dataclass(frozen=True)
class Row:
    """A member with all its facts; a subclass has more of them, each an attribute of the member."""

    value: str
    sentence: str = ""
    label: str = ""
    mark: str = ""


class Described(StrEnum):
    """Members are declared with their meaning: `name = value, sentence`, a label and a mark if any.

    A table with more columns has a `Row` per member.

    Attributes:
        sentence: the meaning of the member, in one sentence.
        label: what people read, such as "Hollow pass"; by default made of the value.
        mark: the verdict whose shape and color it takes on pages; "" where it is on none.
        rank: the place among the members: 0 is the first.
    """

    _value_: str
    sentence: str
    label: str
    mark: str
    rank: int

    def __new__(cls, value: str | Row, sentence: str = "", label: str = "", mark: str = "") -> Self:
        row = value if isinstance(value, Row) else Row(value, sentence, label, mark)
        member = str.__new__(cls, row.value)
        member._value_ = row.value
        for fact in fields(row)[1:]:
            setattr(member, fact.name, getattr(row, fact.name))
        member.label = row.label or row.value.replace("_", " ").capitalize()
        member.rank = len(cls.__members__)
        return member

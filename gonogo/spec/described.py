"""Enums whose members say what they mean."""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class Described(StrEnum):
    """Members are declared with their meaning: `name = value, sentence`, and a label if needed.

    Attributes:
        sentence: the meaning of the member, in one sentence.
        label: what people read, such as "Hollow pass"; by default made of the value.
        rank: the place among the members: 0 is the first.
    """

    _value_: str
    sentence: str
    label: str
    rank: int

    def __new__(cls, value: str, sentence: str = "", label: str = "") -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.sentence = sentence
        member.label = label or value.replace("_", " ").capitalize()
        member.rank = len(cls.__members__)
        return member

"""Unseen terms: what several seeds of a test, together, could not have seen.

A red output that rounding explains is inconclusive where a term's absence would be explained, too
(gonogo.spec.verdicts.explain_output). One seed that could have seen the term is enough: the same
kernel computed it there, and computed it right.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gonogo.spec.verdicts import CONSTANT_X, Explanation

NAME = "unseen_terms"
"""The statistic that lists the terms of an output; only outputs that a program explains have it."""


def shared(rows: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the terms that none of several seeds could have seen.

    rows: the statistics of one output, a row per seed. Rows without unseen terms, which no program
    explains, say nothing of them.
    """
    seeds = [row[NAME] for row in rows if row.get(NAME) is not None]
    first = seeds[0] if seeds else ()
    return tuple(term for term in first if all(term in terms for terms in seeds))


def is_cause(entry: Mapping[str, Any]) -> bool:
    """Return whether an output's entry is inconclusive for its unseen terms, and so red.

    One whose x is constant in every row may be green, and other seeds don't make it a false alarm.
    """
    terms = entry.get(NAME) or ()
    is_inconclusive = entry.get("explanation") == Explanation.inconclusive
    return is_inconclusive and bool(terms) and CONSTANT_X not in terms

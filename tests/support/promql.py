"""Names in a Prometheus expression: metrics, label matchers, and labels that it groups by.

It covers as much of the language as our files use.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""\s+ | (?P<text>"(?:[^"\\]|\\.)*") | (?P<range>\[[^\]]*\]) | (?P<number>\d[\w.]*)
      | (?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*) | (?P<sign>=~|!~|!=|==|<=|>=|[-+*/%^<>={}(),])""",
    re.VERBOSE,
)
_GROUPS = {"by", "without", "on", "ignoring", "group_left", "group_right"}
_WORDS = {"and", "or", "unless", "bool", "offset"}


@dataclass
class Named:
    """The names: metric -> [(label, operator, value)] of all its selectors; labels of by, on,
    ... clauses; functions."""

    metrics: dict[str, list[tuple[str, str, str]]] = field(default_factory=dict)
    labels: set[str] = field(default_factory=set)
    functions: set[str] = field(default_factory=set)


def named(expression: str) -> Named:
    """Raises ValueError for a character that isn't of the language."""
    tokens, place = [], 0
    while place < len(expression):
        match = _TOKEN.match(expression, place)
        if match is None:
            raise ValueError(f"{expression[place:]!r} in {expression!r}")
        place = match.end()
        if match.lastgroup:
            tokens.append((match.lastgroup, match.group(match.lastgroup)))
    names, index = Named(), 0
    while index < len(tokens):
        kind, text = tokens[index]
        after = tokens[index + 1][1] if index + 1 < len(tokens) else ""
        index += 1
        if kind != "name" or text in _WORDS:
            continue
        if text in _GROUPS:
            end = tokens.index(("sign", ")"), index)
            names.labels |= {value for sort, value in tokens[index:end] if sort == "name"}
            index = end + 1
        elif after == "(" or after in _GROUPS:
            names.functions.add(text)
        else:
            matchers = names.metrics.setdefault(text, [])
            if after == "{":
                end = tokens.index(("sign", "}"), index)
                inner = [token for token in tokens[index + 1 : end] if token[1] != ","]
                matchers += [
                    (inner[n][1], inner[n + 1][1], inner[n + 2][1][1:-1])
                    for n in range(0, len(inner), 3)
                ]
                index = end + 1
    return names

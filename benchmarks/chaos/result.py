"""The result of a chaos run: its figures, and what is wrong."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Result:
    """The figures of a run, and what is wrong."""

    jobs: Counter[str] = field(default_factory=Counter)
    seeds: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    given_up: Counter[str] = field(default_factory=Counter)
    """Why seeds have no numbers."""
    lost: int = 0
    doubled: int = 0
    deliveries: int = 0
    problems: list[str] = field(default_factory=list)

    def wrong(self, words: str) -> None:
        """Add a problem."""
        self.problems.append(words)

"""A batch of results: seeds that arrive together, with their outputs as columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gonogo.judging.columns import SeedColumns, columns_of
from gonogo.reports import forms
from gonogo.reports.outcomes import Outcome
from gonogo.reports.red_hollow import RED_OUTCOMES
from gonogo.spec.statistics import ALWAYS

Outputs = Mapping[str, Mapping[str, Any]]
LONGEST = {"duration_ms": 1e12, "kernel_s": 1e9}
"""Thirty years, in the unit of each time of a row."""
SHORTEST_S = 1e-9
"""A shorter time of a kernel is none: no clock measures it."""
LARGEST = 1e100
"""An error in float32 divided by the smallest rounding of it is below 1e84."""


@dataclass(frozen=True)
class Batch:
    """Seeds and their outputs."""

    rows: Sequence[Mapping[str, Any]]
    """An object for each (seed, repeat), as in a results message; its `outputs` aren't read."""
    columns: Sequence[SeedColumns] = ()
    """The outputs of kernels."""
    objects: Mapping[int, Outputs] = field(default_factory=dict)
    """The outputs of rows with results of existing tests, of which there may be thousands."""
    judged: Sequence[SeedColumns] = ()
    """The outputs of kernels: `columns`, and the judged arrays among `objects`."""

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]]) -> Batch:
        """Return the batch of rows that have their `outputs`."""
        return cls.parse({"rows": rows})

    @classmethod
    def parse(cls, message: Mapping[str, Any]) -> Batch:
        """Return the batch in a results message.

        Its rows have their outputs, or they are in `columns`. Raises AttributeError, KeyError,
        TypeError or ValueError for another form.
        """
        rows: Sequence[Mapping[str, Any]] = message.get("rows") or ()
        columns = [SeedColumns.parse(part) for part in message.get("columns") or ()]
        objects = {
            place: outputs for place, row in enumerate(rows) if (outputs := row.get("outputs"))
        }
        kernels = {place: seen for place, seen in objects.items() if not has_tests(seen)}
        columns += columns_of([*kernels.values()], [*kernels])
        tests = {place: seen for place, seen in objects.items() if place not in kernels}
        arrays = [
            {name: output for name, output in seen.items() if "outcome" not in output}
            for seen in tests.values()
        ]
        return cls(rows, columns, tests, [*columns, *columns_of(arrays, [*tests])])

    def check(self, *, of_gauge: bool = False) -> None:
        """Raise SenselessResult for statistics that no judgment has, and places that no seed has.

        A hostile host sends anything, and sums, charts and comparisons compute with them. The
        outputs of a gauge's rows have no verdict.
        """
        forms.check_rows(self.rows)
        for row in self.rows:
            position = row.get("position")
            is_place = position is None or (type(position) is int and 0 <= position < 2**31)
            wrong = [n for n, most in LONGEST.items() if not _is_possible(row.get(n), most)]
            if wrong or not is_place:
                name = (*wrong, "position")[0]
                raise forms.SenselessResult(f"the {name} is {str(row.get(name))[:40]!r}")
        for tests in self.objects.values():
            for name, test in tests.items():
                if "outcome" in test:
                    forms.check_test(name, test)
        for output in (output for part in self.judged for output in part.outputs):
            forms.check_names(
                (output.name, *output.statistics, *(k or "" for _, k in output.fields))
            )
            forms.check_floats(output.name, output.fields)
            for name, values in output.others.items():
                forms.check_values(output.name, name, values)
            if not of_gauge:
                heads = output.values("verdict"), output.values("explanation")
                forms.check_judged(output.name, *heads)
            for name in ALWAYS:
                numbers = output.find(name)
                if numbers is None:
                    distinct = forms.distinct(output.values(name))
                    wrong = [value for value in distinct if not _is_possible(value)]
                else:  # NaN and infinity become null
                    too_large = (numbers > LARGEST) & (numbers != math.inf)
                    wrong = list(numbers[(numbers < 0) | too_large])
                if wrong:
                    text = str(wrong[0])[:40]
                    raise forms.SenselessResult(
                        f"{output.name[:40]!r}: the statistic {name} is {text!r}"
                    )

    def with_outputs(self) -> set[int]:
        """Return the places of the rows that have outputs."""
        return {*self.objects, *(row for part in self.columns for row in part.rows)}

    def take(self, places: Sequence[int]) -> Batch:
        """Return the rows at these ascending places, with their outputs."""
        if len(places) == len(self.rows):
            return self
        new_place = {place: number for number, place in enumerate(places)}
        objects = {new_place[n]: seen for n, seen in self.objects.items() if n in new_place}
        columns, judged = (
            [part for whole in parts if (part := whole.within(new_place)).rows]
            for parts in (self.columns, self.judged)
        )
        return Batch([self.rows[place] for place in places], columns, objects, judged)


def kernel_s(row: Mapping[str, Any]) -> float | None:
    """Return the seconds of the kernel alone for a seed; None where they aren't known."""
    seconds = row.get("kernel_s") or 0.0
    return seconds if SHORTEST_S <= seconds < math.inf else None


def has_tests(outputs: Outputs) -> bool:
    """Return whether a seed has results of existing tests among its outputs."""
    return any("outcome" in output for output in outputs.values())


def is_green(outputs: Outputs) -> bool | None:
    """Return whether an iteration's tests passed; None for a kernel's seed, which has no tests."""
    outcomes = {output.get("outcome") for output in outputs.values()}
    return False if outcomes & RED_OUTCOMES else True if Outcome.passed in outcomes else None


def _is_possible(value: object, most: float = LARGEST) -> bool:
    """Return whether a statistic may have a value that isn't a float in every seed."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return True
    return not isinstance(value, bool) and isinstance(value, int | float) and 0 <= value <= most

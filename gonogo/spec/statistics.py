"""The statistics of an output: one row says what each is, and how it is shown.

The docs' table, the columns of exports, the numbers on a seed's page, the checks of stored numbers
and the API's schema are made from these rows. gonogo/judgment computes the values.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from gonogo.spec.compared_outputs import AgainstReference, BestFault, CommonFactor, ExactComparison


@dataclass(frozen=True)
class Statistic:
    """A statistic of an output."""

    name: str
    sentence: str
    """Its meaning, for the docs and for hovering on pages."""
    reference: Literal["raw", "quantized", "replay", ""] = ""
    """The output is compared with it: the raw or the quantized reference, or a replay."""
    kind: Any = float
    """The type of its value where it isn't null; the service refuses other values."""
    label: str = ""
    """The heading of its column on the page of a seed, which doesn't show it without one."""
    unit: str = ""
    column: bool = False
    """Exports have a column of that name; the others are JSON in the column `other`."""
    always: bool = False
    """Every output in results has it, if only as null."""

    @property
    def adapter(self) -> TypeAdapter[Any]:
        """The form of its values in JSON, which may all be null."""
        return _adapter(self.kind)

    @property
    def heading(self) -> str:
        """The label with its unit."""
        return f"{self.label}, {self.unit}" if self.unit else self.label


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind | None)


_ROWS = (
    Statistic("tolerance_ratio", "the largest error divided by its tolerance, atol + rtol"
        " abs(reference); above 1 is outside. null without rtol and atol", "raw",
        label="error ÷ tolerance", column=True, always=True),
    Statistic("rounding_ratio", "the largest error divided by the largest that the arithmetic may"
        " have: of the one that explains the output, else of the closest", "quantized",
        label="error ÷ rounding", column=True, always=True),
    Statistic("distance", "the largest distance of an element from what rounds to the replayed"
        " value, in standard deviations of what isn't stored", "replay", label="beyond the replay",
        unit="σ"),
    Statistic("shared", "the largest error that a group of elements shares, such as that of a"
        " row's mean, in its standard deviations", "replay", label="shared by a group", unit="σ"),
    Statistic("common",
        "the factors 1 + `estimate` that all values of a source share, by which seeds are pooled",
        "replay", kind=list[CommonFactor]),
    Statistic("max_abs", "the largest absolute error", "raw", label="max |e|", column=True,
        always=True),
    Statistic("mean_abs", "the mean absolute error", "raw", column=True),
    Statistic("rms", "the root mean square of the errors", "raw", label="rms error", column=True,
        always=True),
    Statistic("rel_frobenius", "the 2-norm of the error divided by the 2-norm of the reference",
        "raw", column=True),
    Statistic("pcc_deficit", "1 minus the Pearson correlation, computed without losing digits",
        "raw", label="1 − PCC", column=True, always=True),
    Statistic("ulp_max", "the largest distance to the rounded reference in units in the last"
        " place; huge near zeros of the reference", "raw", label="largest distance", unit="ulp",
        column=True),
    Statistic("ulp_p99", "its 99th percentile, in whole units", "raw", unit="ulp", column=True),
    Statistic("needed_atol",
        "the smallest atol that passes, for each rtol of 0, 1e-5, 1e-3, 1e-2, 1.6e-2 and 1e-1",
        "raw", kind=dict[str, float | None]),
    Statistic("mismatch_fraction",
        "the fraction of the elements that differ from the rounded reference", "quantized",
        label="values that differ", column=True),
    Statistic("tolerance_ratio_quantized", "`tolerance_ratio` against the quantized reference",
        "quantized", column=True),
    Statistic("outliers", "the number of elements beyond rounding that are near a power of two"
        " times the reference: a known Wormhole erratum", "quantized", kind=int, column=True),
    Statistic("worst_index",
        "row and column of the element farthest beyond rounding, or of the first NaN or Inf",
        kind=list[int]),
    Statistic("count", "the number of elements", kind=int, column=True),
    Statistic("digest", "the hash of the output's bytes and shape", kind=str, column=True),
    Statistic("nonfinite", "the number of NaN and Inf where the reference has none", kind=int,
        column=True),
    Statistic("nonfinite_kinds", "their kinds", kind=dict[str, int | str]),
    Statistic("nonfinite_statistics", "the names of infinite statistics, and their kinds",
        kind=dict[str, str]),
    Statistic("arithmetic",
        "the [arithmetic](#the-arithmetic) that explains the output, else the closest one",
        "replay", kind=str),
    Statistic("is_wide", "whether only 16-bit operations in an unknown order explain it", "replay",
        kind=bool),
    Statistic("reason", "why it isn't explained, or isn't certain", "replay", kind=str),
    Statistic("places", "where its wrong values lie", "replay", kind=str),
    Statistic("fault", "the fault that explains most of an unexplained error, if one does",
        kind=str),
    Statistic("fault_share", "the fraction of the misfit that it takes away", "replay"),
    Statistic("faults", "the best faults, whether one is named or not", kind=list[BestFault]),
    Statistic("detection_limits",
        "what the verdict could not have seen ([below](#detection-limits))", kind=list[str]),
    Statistic("hides_fault", "whether one of these is a fault, and no other rounding", kind=bool),
    Statistic("least_factor", "the size from which a common factor of the output would have shown"),
    Statistic("red_rate", "how often today's tolerance turns a right kernel red", "replay"),
    Statistic("advice", "a sentence on the tolerance to take", "replay", kind=str),
    Statistic("exact", "the comparison with the exact result, of exact inputs",
        kind=ExactComparison),
    Statistic("reference", "the comparison with the reference build, of a job that has one",
        kind=AgainstReference),
    Statistic("against_float64",
        "its errors against float64, where its test compared it with values of its own",
        kind=dict[str, float | None]),
    Statistic("gates",
        "the largest error divided by what each public gate allows, in a gauge's runs",
        kind=dict[str, float | None]),
)  # fmt: skip
STATISTICS: Mapping[str, Statistic] = {row.name: row for row in _ROWS}
"""Name -> statistic, in the order of pages, docs and exports."""
ALWAYS = tuple(row.name for row in _ROWS if row.always)
"""The statistics that every stored output has."""


def fits(name: str, value: object) -> bool:
    """Return whether a value may stand for the statistic of this name; others hold anything."""
    row = STATISTICS.get(name)
    if row is None or value is None or type(value) is row.kind:
        return True
    try:
        row.adapter.validate_json(json.dumps(value), strict=True)
    except ValidationError:
        return False
    return True

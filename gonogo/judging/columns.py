"""The outputs of many seeds as columns.

Workers send them so, and the service counts and packs them so: a number costs a hundredth of what
it costs in an object of its own.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Output = Mapping[str, Any]
Field = tuple[str, str | None]
"""A statistic, and the key within it where it is a dictionary of floats, such as `needed_atol`."""


@dataclass(frozen=True, eq=False)
class OutputColumns:
    """One output of several seeds."""

    name: str
    statistics: Sequence[str]
    """All statistics, in the order of the seeds' objects."""
    fields: Sequence[Field]
    """The statistics that are floats in every seed."""
    numbers: NDArray[np.float64]
    """Their values, (fields, seeds)."""
    others: Mapping[str, Sequence[Any]]
    """The other statistics' values, one per seed."""

    def find(self, statistic: str) -> NDArray[np.float64] | None:
        """Return the values of a statistic that is a float in every seed, else None."""
        field: Field = (statistic, None)
        return self.numbers[self.fields.index(field)] if field in self.fields else None

    def values(self, statistic: str) -> Sequence[Any]:
        """Return each seed's value of a statistic; None where it isn't among the statistics."""
        if statistic in self.others:
            return self.others[statistic]
        rows = [row for row, (name, _) in enumerate(self.fields) if name == statistic]
        keys = [self.fields[row][1] for row in rows]
        if not keys:
            return [None] * self.numbers.shape[1]
        if keys == [None]:
            return list(self.numbers[rows[0]].tolist())
        return [dict(zip(keys, seed, strict=True)) for seed in self.numbers[rows].T.tolist()]

    def take(self, places: Sequence[int]) -> OutputColumns:
        """Return the columns of some seeds."""
        others = {name: [values[place] for place in places] for name, values in self.others.items()}
        return replace(self, numbers=self.numbers[:, places], others=others)

    def objects(self) -> list[dict[str, Any]]:
        """Return an object for each seed."""
        columns = [self.values(name) for name in self.statistics]
        return [dict(zip(self.statistics, row, strict=True)) for row in zip(*columns, strict=True)]


@dataclass(frozen=True, eq=False)
class SeedColumns:
    """The outputs of the seeds of a batch that have the same statistics."""

    rows: Sequence[int]
    """Their places in the batch, ascending."""
    outputs: Sequence[OutputColumns]
    """Sorted by name."""

    @property
    def is_finite(self) -> bool:
        """Return whether no statistic is NaN or infinite."""
        return all(np.isfinite(output.numbers).all() for output in self.outputs)

    def take(self, places: Sequence[int]) -> SeedColumns:
        """Return the columns of some seeds, given by their places in `rows`."""
        rows = [self.rows[place] for place in places]
        return SeedColumns(rows, [output.take(places) for output in self.outputs])

    def within(self, new_places: Mapping[int, int]) -> SeedColumns:
        """Return the columns of the rows in a part of the batch, {place: place there}."""
        part = self.take([n for n, row in enumerate(self.rows) if row in new_places])
        return SeedColumns([new_places[row] for row in part.rows], part.outputs)

    def objects(self) -> list[dict[str, dict[str, Any]]]:
        """Return the outputs of each seed by name."""
        names = [output.name for output in self.outputs]
        columns = [output.objects() for output in self.outputs]
        return [dict(zip(names, seed, strict=True)) for seed in zip(*columns, strict=True)]

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types; floats are in base64 of their bytes."""
        return {"rows": list(self.rows), "outputs": [_to_json(output) for output in self.outputs]}

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> SeedColumns:
        """Parse the object that `to_json` makes. Raises ValueError, KeyError or TypeError."""
        rows = [int(row) for row in data["rows"]]
        outputs = [_parse(output, len(rows)) for output in data["outputs"]]
        return cls(rows, sorted(outputs, key=lambda output: output.name))


def in_columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return {"rows", "columns"} of a results message; columns have the outputs of judged seeds.

    Rows of gauges, and those with results of existing tests, keep their outputs.
    """
    moved = {place: row["outputs"] for place, row in enumerate(rows) if is_judged(row)}
    columns = columns_of([*moved.values()], [*moved])
    return {
        "rows": [
            {name: value for name, value in row.items() if name != "outputs"}
            if place in moved
            else row
            for place, row in enumerate(rows)
        ],
        "columns": [part.to_json() for part in columns],
    }


def is_judged(row: Mapping[str, Any]) -> bool:
    """Return whether a row is that of a judged seed, whose outputs go into columns."""
    outputs = row.get("outputs")
    return (
        bool(outputs)
        and "part" not in row
        and not any("outcome" in output for output in row["outputs"].values())
    )


def columns_of(seeds: Sequence[Mapping[str, Output]], rows: Sequence[int]) -> list[SeedColumns]:
    """Return the outputs of seeds as columns; seeds without outputs are left out.

    rows: the seeds' places in their batch
    """
    groups: dict[Any, list[int]] = {}
    for place, outputs in enumerate(seeds):
        if outputs:
            key = tuple((name, *_form(outputs[name])) for name in sorted(outputs))
            groups.setdefault(key, []).append(place)
    return [
        SeedColumns(
            [rows[place] for place in places],
            [
                _columns(name, statistics, fields, [seeds[place][name] for place in places])
                for name, statistics, fields in key
            ],
        )
        for key, places in groups.items()
    ]


def _form(output: Output) -> tuple[tuple[str, ...], tuple[Field, ...]]:
    """Return the statistics of an output, and its floats."""
    statistics = tuple(output)
    fields, dictionaries = _typed(statistics, tuple(map(type, output.values())))
    for name in dictionaries:
        inner = output[name]
        if inner and all(type(value) is float for value in inner.values()):
            fields += tuple((name, key) for key in inner)
    return statistics, fields


@lru_cache(maxsize=1024)
def _typed(
    names: tuple[str, ...], types: tuple[type, ...]
) -> tuple[tuple[Field, ...], tuple[str, ...]]:
    """Return the floats among values of these types, and the names of the dictionaries."""
    typed = list(zip(names, types, strict=True))
    floats = tuple((name, None) for name, kind in typed if kind is float)
    return floats, tuple(name for name, kind in typed if kind is dict)


def _columns(
    name: str, statistics: Sequence[str], fields: Sequence[Field], seeds: Sequence[Output]
) -> OutputColumns:
    values_of = zip(*(seed.values() for seed in seeds), strict=True)
    columns = dict(zip(statistics, values_of, strict=True))
    numbers = np.empty((len(fields), len(seeds)))
    for row, (statistic, key) in enumerate(fields):
        values = columns[statistic]
        numbers[row] = values if key is None else [inner[key] for inner in values]
    floats = {statistic for statistic, _ in fields}
    others = {statistic: columns[statistic] for statistic in statistics if statistic not in floats}
    return OutputColumns(name, statistics, fields, numbers, others)


def _to_json(output: OutputColumns) -> dict[str, Any]:
    same: dict[str, Any] = {}
    different: dict[str, list[Any]] = {}
    for name, values in output.others.items():
        if _are_same(values):
            same[name] = values[0]
        else:
            different[name] = list(values)
    return {
        "name": output.name,
        "statistics": list(output.statistics),
        "fields": [list(field) for field in output.fields],
        "numbers": base64.b64encode(output.numbers.astype("<f8").tobytes()).decode(),
        "same": same,
        "different": different,
    }


def _are_same(values: Sequence[Any]) -> bool:
    # repr, because 1, 1.0 and True are equal, also within lists
    first = values[0]
    if values.count(first) < len(values):
        return False
    return isinstance(first, str | None) or len(set(map(repr, values))) == 1


def _parse(data: Mapping[str, Any], count: int) -> OutputColumns:
    fields = [(str(name), None if key is None else str(key)) for name, key in data["fields"]]
    numbers = np.frombuffer(base64.b64decode(data["numbers"], validate=True), "<f8")
    others: dict[str, Sequence[Any]] = {
        name: [value] * count for name, value in data["same"].items()
    }
    others.update(data["different"])
    floats = {name for name, _ in fields}
    statistics = [str(name) for name in data["statistics"]]
    wrong = [name for name, values in others.items() if len(values) != count]
    if wrong or floats & others.keys() or floats | others.keys() != set(statistics):
        raise ValueError(
            f"output {data['name']}: each of its statistics has either numbers or"
            f" {count} other values; these don't: {wrong or sorted(floats ^ set(statistics))}"
        )
    return OutputColumns(
        str(data["name"]), statistics, fields, numbers.reshape(len(fields), count), others
    )

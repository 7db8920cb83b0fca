"""A batch of results: seeds that arrive together, with their outputs as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gonogo.judging.columns import SeedColumns

Outputs = Mapping[str, Mapping[str, Any]]


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

        Its rows have their outputs, or they are in `columns`. Raises ValueError, KeyError or
        TypeError.
        """
        # Imported here because it loads NumPy, which the API doesn't need.
        from gonogo.judging.columns import SeedColumns, columns_of

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


def has_tests(outputs: Outputs) -> bool:
    """Return whether a seed has results of existing tests among its outputs."""
    return any("outcome" in output for output in outputs.values())

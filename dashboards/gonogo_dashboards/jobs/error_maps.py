"""The error map of a seed: its artifact, a summary in words, and the worst tiles.

The page names the address of the artifact, and the browser fetches the cells from there. The cells
are many and never change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.jobs import tile_patterns
from gonogo_dashboards.kit import words
from gonogo_dashboards.kit.cache import LRUCache
from gonogo_dashboards.kit.list_rows import SeedChoice
from gonogo_service.jobs import artifacts
from gonogo_service.jobs.model import ArtifactRow
from gonogo_service.kit.database.records import from_object

KIND = "error_map"
MAX_TILES = 50
"""Lines of the table; the artifact has all cells."""
MAX_CHOICES = 12
_CACHED = 64
"""Maps whose summary is cached: an artifact never changes, and a live page is read every second."""


@dataclass(frozen=True)
class TileLine:
    """A cell in the table: its first and last row and feature, counted from 0, and its numbers.

    null: no number is finite.
    """

    rows: tuple[int, int]
    features: tuple[int, int]
    max_abs: float | None
    max_ulp: float | None
    signed_mean: float | None
    nonfinite: int


@dataclass(frozen=True)
class MapContent:
    """A map without its cells.

    `down` and `across` count the cells; `group` is the number of tiles (rows, columns) in a cell,
    and a tile has `tile` x `tile` values.
    """

    rows: int
    features: int
    tile: int
    group: tuple[int, int]
    down: int
    across: int
    format: str | None
    """The format whose ulp is the unit of the largest errors.

    It is null where the errors are absolute.
    """
    largest: float | None
    smallest: float | None
    """The largest and the smallest nonzero value of the cells' largest errors.

    The unit is ulp where the map has them.
    """
    mean: float
    """The largest |signed mean| of a cell."""
    nonfinite: int
    summary: str
    tiles: tuple[TileLine, ...]


@dataclass(frozen=True)
class MapView:
    """A map on its page; `url` is the artifact with all cells."""

    artifact: str
    url: str
    seed: int
    repeat: int
    output: str
    others: tuple[SeedChoice, ...]
    """Seeds with a map of the same output."""
    content: MapContent


_contents: LRUCache[MapContent] = LRUCache(_CACHED)


def read(
    session: Session,
    job_id: str,
    heads: Sequence[ArtifactRow],
    output: str,
    requested: tuple[int, int] | None,
    worst: Sequence[tuple[int, int]],
) -> MapView | None:
    """Return the map of an output: of the requested (seed, repeat), else of the worst seed.

    heads: the job's artifacts. An output without a map is replaced by another one that has a map.
    None: the job has no map.
    """
    maps = [head for head in heads if head.kind == KIND]
    named = [head for head in maps if head.output == output] or maps
    if not named:
        return None
    rank = {pair: place for place, pair in enumerate(worst)}
    named.sort(
        key=lambda head: (rank.get((head.seed, head.repeat), len(rank)), head.seed, head.repeat)
    )
    chosen = next((head for head in named if (head.seed, head.repeat) == requested), named[0])

    def read_content() -> MapContent | None:
        artifact = artifacts.get(session, job_id, chosen.id)
        return None if artifact is None else content(artifact.content)

    known = _contents.get(chosen.id, read_content)
    if known is None:
        return None
    same = [head for head in named if head.output == chosen.output][:MAX_CHOICES]
    return from_object(
        MapView,
        chosen,
        artifact=chosen.id,
        url=urls.artifact(job_id, chosen.id),
        others=choices(job_id, same, chosen, output if chosen.output == output else None),
        content=known,
    )


def choices(
    job_id: str, heads: Sequence[ArtifactRow], chosen: ArtifactRow, output: str | None = None
) -> tuple[SeedChoice, ...]:
    """Return the seeds of some artifacts, of which the page shows the chosen one."""
    pairs = [(head, (head.seed, head.repeat)) for head in heads]
    return tuple(
        SeedChoice(*pair, urls.job(job_id, output=output, seed=pair), head is chosen)
        for head, pair in pairs
    )


def content(stored: Mapping[str, Any]) -> MapContent:
    """Return a map for the page from the JSON of an artifact (gonogo.judging.error_maps)."""
    rows, features, tile = int(stored["rows"]), int(stored["features"]), int(stored["tile"])
    group = int(stored["group"][0]), int(stored["group"][1])
    down, across = int(stored["cells"][0]), int(stored["cells"][1])
    largest, signed, broken = stored["max_abs"], stored["signed_mean"], stored["nonfinite"]
    ulps = stored.get("max_ulp")
    shown = largest if ulps is None else ulps
    cells = [(row, column) for row in range(down) for column in range(across)]
    bad = [cell for cell in cells if shown[cell[0]][cell[1]] or broken[cell[0]][cell[1]]]
    # cells that aren't finite come first: they are worse than any number
    bad.sort(key=lambda at: (-broken[at[0]][at[1]], -(shown[at[0]][at[1]] or 0.0), at))
    worst = tuple(
        TileLine(
            _ends(row, group[0] * tile, rows),
            _ends(column, group[1] * tile, features),
            largest[row][column],
            None if ulps is None else ulps[row][column],
            signed[row][column],
            broken[row][column],
        )
        for row, column in bad[:MAX_TILES]
    )
    values = [value for row in shown for value in row if value]
    most = max((value for row in largest for value in row if value), default=None)
    narrow = features % (tile * group[1]) or None
    lost, form = sum(map(sum, broken)), stored.get("format")
    pattern = tile_patterns.words(largest, signed, narrow)
    return MapContent(
        rows=rows,
        features=features,
        tile=tile,
        group=group,
        down=down,
        across=across,
        format=form,
        largest=max(values, default=None),
        smallest=min(values, default=None),
        mean=max((abs(value) for row in signed for value in row if value is not None), default=0.0),
        nonfinite=lost,
        summary=_summary(worst, str(form or ""), lost, pattern, most),
        tiles=worst,
    )


def _ends(cell: int, size: int, extent: int) -> tuple[int, int]:
    return cell * size, min(extent, (cell + 1) * size) - 1


def _summary(
    worst: Sequence[TileLine], form: str, lost: int, pattern: str, largest: float | None
) -> str:
    """Return the map in words, for readers who don't see it."""
    if not worst:
        return "No tile has an error: every value equals the reference."
    first = worst[0]
    place = (
        f"in rows {first.rows[0]} to {first.rows[1]},"
        f" features {first.features[0]} to {first.features[1]}"
    )
    if lost:
        verb = "is" if lost == 1 else "are"
        text = f"{words.count(lost, 'value')} {verb} NaN or Inf, most of them {place}."
        return f"{text} {pattern}".strip()
    if first.max_ulp is None:
        return f"The largest |e| is {words.number(first.max_abs)}, {place}. {pattern}".strip()
    text = (
        f"Counted in ulp of {form}, the largest error is {words.number(first.max_ulp)} ulp"
        f" (|e| {words.number(first.max_abs)}), {place}."
    )
    if largest is not None and largest != first.max_abs:
        text += f" The largest |e| is {words.number(largest)}, elsewhere."
    return f"{text} {pattern}".strip()

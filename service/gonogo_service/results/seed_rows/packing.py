"""Many seeds packed into their layouts, numbers and rest."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.judging.columns import OutputColumns, SeedColumns, columns_of
from gonogo.spec.statistics import ROLLED_UP
from gonogo_service.kit.database.columns import VERDICTS
from gonogo_service.kit.database.encoding import decode, encode
from gonogo_service.results.seed_rows.batch import Batch
from gonogo_service.results.seed_rows.layouts import (
    CONSTANT,
    DIGEST,
    DIGITS,
    DOUBLE,
    EXACT,
    FIXED,
    HEAD,
    LARGEST,
    MAX_LAYOUTS,
    MAX_OUTPUTS,
    NESTED,
    OTHER,
    OUTPUT_EXPLANATIONS,
    SINGLE,
    SMALLEST,
    TAIL,
    Layout,
    finite,
)

_VERDICT_CODES = {name: code for code, name in enumerate(VERDICTS)}
_EXPLANATION_CODES = {name: code for code, name in enumerate(OUTPUT_EXPLANATIONS)}
_HEXADECIMAL = "0123456789abcdef"
_WIDE, _NARROW = 0, 1
_PLACED = frozenset({*ROLLED_UP, *HEAD, *TAIL})


@dataclass
class Packed:
    """The outputs of a batch's seeds as they are stored, by their places in the batch."""

    layouts: list[Layout | None]
    """None where there are no outputs, or too many."""
    numbers: list[bytes | None]
    rest: list[str | None]


def pack(batch: Batch) -> Packed:
    """Return the outputs of a batch's seeds as they are stored."""
    size = len(batch)
    packed = Packed([None] * size, [None] * size, [None] * size)
    for row, outputs in batch.objects.items():
        packed.rest[row] = _json(outputs)
    for part in batch.columns:
        if len(part.outputs) > MAX_OUTPUTS:
            for row, outputs in zip(part.rows, part.objects(), strict=True):
                packed.rest[row] = _json(outputs)
        else:
            _pack(part, packed)
    return packed


def _json(outputs: Mapping[str, Mapping[str, Any]]) -> str:
    return encode({name: finite(output) for name, output in outputs.items()})


def _pack(columns: SeedColumns, packed: Packed) -> None:
    """Pack seeds whose outputs have the same statistics."""
    if not all(np.isfinite(output.numbers).all() for output in columns.outputs):
        seeds = [
            {name: finite(output) for name, output in outputs.items()}
            for outputs in columns.objects()
        ]
        for part in columns_of(seeds, columns.rows):
            _pack(part, packed)
        return
    forms = np.stack([_forms(output) for output in columns.outputs])
    if (forms == forms[:, :1]).all():
        _pack_alike(columns, forms[:, 0].tolist(), packed)
        return
    alike: dict[tuple[int, ...], list[int]] = {}
    for place, of_seed in enumerate(forms.T.tolist()):
        alike.setdefault(tuple(of_seed), []).append(place)
    for of_seed, places in alike.items():
        _pack_alike(columns.take(places), of_seed, packed)


def _forms(output: OutputColumns) -> NDArray[np.int8]:
    """Return the form of each seed: _WIDE, _NARROW, or _NARROW without a digest.

    A seed is wide if a number doesn't fit float32, or its digest isn't one of 64 bits.
    """
    rows = [
        row for row, (name, key) in enumerate(output.fields) if key is None and name not in EXACT
    ]
    sizes = np.abs(output.numbers[rows])
    fits = (((sizes >= SMALLEST) & (sizes < LARGEST)) | (sizes == 0)).all(axis=0)
    forms = np.where(fits, _NARROW, _WIDE).astype(np.int8)
    digests = output.others.get("digest")
    if digests is not None and not _are_digests(digests):
        kinds = [
            _NARROW + 1 if digest is None else _NARROW if _are_digests([digest]) else _WIDE
            for digest in digests
        ]
        forms *= np.array(kinds, np.int8)
    return forms


def _are_digests(values: Sequence[Any]) -> bool:
    return (
        set(map(type, values)) == {str}
        and set(map(len, values)) == {DIGITS}
        and not "".join(values).strip(_HEXADECIMAL)
    )


def _pack_alike(columns: SeedColumns, forms: Sequence[int], packed: Packed) -> None:
    """Pack seeds whose outputs have the same entries, in these forms."""
    size = len(columns.rows)
    codes: list[Sequence[int]] = []
    digests: list[NDArray[np.uint64]] = []
    doubles: list[NDArray[np.float64]] = []
    singles: list[NDArray[np.float64]] = []
    others: list[Sequence[Any]] = []
    content: list[tuple[str, list[list[Any]]]] = []
    fixed: list[tuple[list[Any], Sequence[Any]]] = []
    for output, form_of_output in zip(columns.outputs, forms, strict=True):
        entries = _entries(output, narrow=form_of_output != _WIDE)
        content.append((output.name, entries))
        codes.append([_VERDICT_CODES[value] for value in output.values("verdict")])
        codes.append([_EXPLANATION_CODES[value] for value in output.values("explanation")])
        row = {field: number for number, field in enumerate(output.fields)}
        for entry in entries:
            name, form, _ = entry
            if form == DOUBLE:
                known = row.get((name, None))
                doubles.append(_missing(size) if known is None else output.numbers[known])
            elif form == SINGLE:
                singles.append(output.numbers[row[name, None]])
            elif form == DIGEST:
                text = bytes.fromhex("".join(output.others[name]))
                digests.append(np.frombuffer(text, ">u8"))
            elif form == OTHER:
                others.append(output.values(name))
            elif form == FIXED and name in output.others:
                fixed.append((entry, output.others[name]))
        doubles += [
            output.numbers[row[name, key]]
            for name, form, keys in entries
            if form == NESTED
            for key in keys
        ]
    parts: Sequence[tuple[Sequence[Any], str]] = [
        (codes, "u1"),
        (digests, "<u8"),
        (doubles, "<f8"),
        (singles, "<f4"),
    ]
    text = np.concatenate([_bytes(part, form, size) for part, form in parts], axis=1).tobytes()
    length = len(text) // size
    rests = [encode(values) for values in zip(*others, strict=True)] or ["[]"] * size
    layouts = _layouts(content, fixed, size)
    for number, place in enumerate(columns.rows):
        packed.layouts[place] = layouts[number]
        packed.numbers[place] = text[number * length : (number + 1) * length]
        packed.rest[place] = rests[number]


def _missing(size: int) -> NDArray[np.float64]:
    return np.full(size, math.nan)


def _bytes(columns: Sequence[Any], form: str, size: int) -> NDArray[np.uint8]:
    """Return the bytes of each seed's values, (seeds, bytes)."""
    values = np.empty((size, len(columns)), form)
    for number, column in enumerate(columns):
        values[:, number] = column
    return values.view(np.uint8) if columns else np.empty((size, 0), np.uint8)


def _entries(output: OutputColumns, *, narrow: bool) -> list[list[Any]]:
    """Return the entries of an output, in lists; the value of a fixed one is None.

    narrow: with float32, nested numbers and binary digests; otherwise all floats are float64, and
    the others are JSON.
    """
    keys: dict[str, list[str]] = {}
    floats = set()
    for name, key in output.fields:
        if key is None:
            floats.add(name)
        else:
            keys.setdefault(name, []).append(key)
    further = (name for name in output.statistics if name not in _PLACED)
    entries: list[list[Any]] = []
    for name in (*ROLLED_UP, *further, *TAIL[1:]):
        form, detail = OTHER, None
        if name in floats:
            form = SINGLE if narrow and name not in EXACT else DOUBLE
        elif name in keys:
            form, detail = (NESTED, keys[name]) if narrow else (OTHER, None)
        elif name not in output.others:
            form = FIXED
        else:
            types = set(map(type, output.others[name]))
            if types == {type(None)}:
                form = DOUBLE if name in EXACT else FIXED
            elif name == "digest" and narrow:
                form = DIGEST
            elif name in CONSTANT or (types == {int} and name.endswith("count")):
                form = FIXED
        entries.append([name, form, detail])
    return entries


def _layouts(
    content: Sequence[tuple[str, list[list[Any]]]],
    fixed: Sequence[tuple[list[Any], Sequence[Any]]],
    size: int,
) -> Sequence[Layout]:
    """Return the layout of each seed.

    content: the outputs with their entries. fixed: the entries among them whose values the layout
    has, each with its value for each seed.
    """

    def layout(values: Iterable[Any]) -> Layout:
        for (entry, _), value in zip(fixed, values, strict=True):
            entry[2] = value
        return _layout(encode(content))

    columns = [values for _, values in fixed]
    if all(values.count(values[0]) == size for values in columns):
        return [layout(values[0] for values in columns)] * size
    known: dict[str, Layout] = {}
    layouts = []
    for values in zip(*columns, strict=True):
        key = encode(values)
        if key not in known:
            known[key] = layout(values)
        layouts.append(known[key])
    return layouts


@lru_cache(maxsize=MAX_LAYOUTS)
def _layout(content: str) -> Layout:
    return Layout.of(decode(content))

"""Parquet: the records of tables.py in columns, one gzipped row group after the other.

The footer, with the groups' positions, comes last. This is a minimal writer: libraries take 140 MB
on disk, and as much in the API's process, but only one page type, one encoding (PLAIN) and one
codec are needed here. It follows the public specification (apache/parquet-format: parquet.thrift,
Encodings.md); the tests read the files with Arrow. Metadata uses Thrift's compact protocol.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from gonogo_service.exports.parts import Export
from gonogo_service.exports.tables import OF_JOB, OF_OUTPUT, OF_SEED, OTHER, STATISTICS, records

MAGIC = b"PAR1"
GROUP = 20_000
"""Records per row group: a few megabytes."""
_PLAIN, _RLE, _GZIP, _OPTIONAL, _DATA_PAGE, _UTF8 = 0, 3, 2, 1, 0, 0


class Type(IntEnum):
    """Physical types, with the specification's numbers."""

    int64 = 2
    double = 5
    text = 6  # BYTE_ARRAY, annotated as UTF8


INTEGERS = ("seed", "iteration", "repeat", "position")
DOUBLES = ("duration_ms", *(name for name in STATISTICS if name != "digest"))
COLUMNS: tuple[tuple[str, Type], ...] = tuple(
    (name, Type.int64 if name in INTEGERS else Type.double if name in DOUBLES else Type.text)
    for name in (*OF_JOB, *OF_SEED, *OF_OUTPUT, *STATISTICS, OTHER)
)
"""All columns are optional: null means missing. Integer statistics are doubles, because large ones
are rounded anyway."""


def write(export: Export) -> Iterator[bytes]:
    """Yield the file, one row group after the other."""
    yield MAGIC
    offset, total = len(MAGIC), 0
    groups: list[_Struct] = []
    waiting: list[dict[str, Any]] = []
    for record in (record for part in export.parts for record in records(part, part.rows)):
        waiting.append(record)
        if len(waiting) == GROUP:
            data, group = _group(waiting, offset)
            yield data
            groups, offset, total, waiting = [*groups, group], offset + len(data), total + GROUP, []
    if waiting:
        data, group = _group(waiting, offset)
        yield data
        groups, total = [*groups, group], total + len(waiting)
    footer = _footer(groups, total)
    yield footer + struct.pack("<I", len(footer)) + MAGIC


def _group(rows: Sequence[dict[str, Any]], offset: int) -> tuple[bytes, _Struct]:
    """Return the pages of a row group, one per column, and their metadata for the footer."""
    chunks: list[_Struct] = []
    data, whole = bytearray(), 0
    for name, kind in COLUMNS:
        page = _page([_value(record.get(name), kind) for record in rows], kind)
        size, plain = len(page.data), page.plain
        meta = (
            _Struct()
            .number(1, kind, 5)
            .numbers(2, (_PLAIN, _RLE))
            .texts(3, (name,))
            .number(4, _GZIP, 5)
            .number(5, len(rows), 6)
        )
        meta = meta.number(6, plain, 6).number(7, size, 6).number(9, offset + len(data), 6)
        chunks.append(_Struct().number(2, offset + len(data), 6).struct(3, meta))
        data += page.data
        whole += plain
    return bytes(data), _Struct().structs(1, chunks).number(2, whole, 6).number(3, len(rows), 6)


@dataclass(frozen=True)
class _Page:
    data: bytes
    plain: int
    """Bytes before compression, header included."""


def _page(values: Sequence[Any], kind: Type) -> _Page:
    """Return a data page: the validity bits, as runs behind their length, then the values."""
    runs = bytearray()
    start = 0
    for number in range(1, len(values) + 1):
        if number == len(values) or (values[number] is None) != (values[start] is None):
            runs += _varint((number - start) << 1) + bytes((values[start] is not None,))
            start = number
    present = [value for value in values if value is not None]
    if kind is Type.text:
        body = b"".join(struct.pack("<I", len(value)) + value for value in present)
    else:
        body = struct.pack(f"<{len(present)}{'q' if kind is Type.int64 else 'd'}", *present)
    plain = struct.pack("<I", len(runs)) + bytes(runs) + body
    compressor = zlib.compressobj(6, zlib.DEFLATED, 31)  # 31: with gzip's header
    packed = compressor.compress(plain) + compressor.flush()
    page_header = (
        _Struct()
        .number(1, len(values), 5)
        .number(2, _PLAIN, 5)
        .number(3, _RLE, 5)
        .number(4, _RLE, 5)
    )
    header = (
        _Struct()
        .number(1, _DATA_PAGE, 5)
        .number(2, len(plain), 5)
        .number(3, len(packed), 5)
        .struct(5, page_header)
        .encoded()
    )
    return _Page(header + packed, len(header) + len(plain))


def _value(value: Any, kind: Type) -> Any:
    """Return a value with its column's type; None if it doesn't fit, such as a map of numbers."""
    if value is None:
        return None
    if kind is Type.text:
        return str(value).encode("utf-8", "replace")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if kind is Type.int64 else float(value)


def _footer(groups: Sequence[_Struct], total: int) -> bytes:
    root = _Struct().text(4, "gonogo").number(5, len(COLUMNS), 5)
    schema = [root]
    for name, kind in COLUMNS:
        column = _Struct().number(1, kind, 5).number(3, _OPTIONAL, 5).text(4, name)
        schema.append(column.number(6, _UTF8, 5) if kind is Type.text else column)
    return (
        _Struct()
        .number(1, 1, 5)
        .structs(2, schema)
        .number(3, total, 6)
        .structs(4, groups)
        .text(6, "gonogo")
        .encoded()
    )


@dataclass
class _Struct:
    """A Thrift struct in the compact protocol; fields are added in the order of their numbers.

    Wire types: 5 i32, 6 i64, 8 binary, 9 list, 12 struct.
    """

    data: bytearray = field(default_factory=bytearray)
    last: int = 0

    def number(self, identity: int, value: int, wire: int) -> _Struct:
        """Add a field of i32 (5) or i64 (6)."""
        return self._put(identity, wire, _zigzag(value))

    def text(self, identity: int, value: str) -> _Struct:
        """Add a text field."""
        return self._put(identity, 8, _binary(value))

    def struct(self, identity: int, value: _Struct) -> _Struct:
        """Add a struct field."""
        return self._put(identity, 12, value.encoded())

    def structs(self, identity: int, values: Sequence[_Struct]) -> _Struct:
        """Add a list of structs."""
        return self._list(identity, 12, [value.encoded() for value in values])

    def numbers(self, identity: int, values: Sequence[int]) -> _Struct:
        """Add a list of i32."""
        return self._list(identity, 5, [_zigzag(value) for value in values])

    def texts(self, identity: int, values: Sequence[str]) -> _Struct:
        """Add a list of texts."""
        return self._list(identity, 8, [_binary(value) for value in values])

    def encoded(self) -> bytes:
        """Return the bytes, with the stop byte after the last field."""
        return bytes(self.data) + b"\0"

    def _list(self, identity: int, wire: int, items: Sequence[bytes]) -> _Struct:
        head = (
            bytes((len(items) << 4 | wire,))
            if len(items) < 15
            else bytes((0xF0 | wire,)) + _varint(len(items))
        )
        return self._put(identity, 9, head + b"".join(items))

    def _put(self, identity: int, wire: int, value: bytes) -> _Struct:
        self.data += bytes(((identity - self.last) << 4 | wire,)) + value
        self.last = identity
        return self


def _varint(value: int) -> bytes:
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*data, value))


def _zigzag(value: int) -> bytes:
    return _varint(value << 1 if value >= 0 else (-value << 1) - 1)


def _binary(text: str) -> bytes:
    data = text.encode()
    return _varint(len(data)) + data

"""Read a report from the bytes of a file and the name of its format."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gonogo import fields
from gonogo.errors import FieldError
from gonogo.reports import ctrf, gtest, junit, lines
from gonogo.reports.cases import TestReport
from gonogo.spec.test_spec import MAX_ELEMENTS

_PARSERS: Mapping[str, Callable[[bytes], TestReport]] = {
    "junit": junit.parse,
    "gtest-xml": gtest.parse_xml,
    "gtest-json": gtest.parse_json,
    "ctrf": ctrf.parse,
}
FORMATS = (*_PARSERS, "gonogo")


def read(data: bytes, form: str, *, max_elements: int = MAX_ELEMENTS) -> TestReport:
    """Return the report in a file. Raises FieldError if it isn't a report of that format."""
    parse = _PARSERS.get(fields.choice(form, FORMATS, "format"))
    return lines.parse(data, max_elements=max_elements) if parse is None else parse(data)


def guess(data: bytes) -> str:
    """Return the format of a file from its first bytes. Raises FieldError if it is unknown."""
    start = data[:4096].lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith(b"<"):
        # only gtest's XML has this name in its root element
        return "gtest-xml" if b"<testsuites" in start and b'name="AllTests"' in start else "junit"
    if start.startswith(b"{"):
        first = data.lstrip(b"\xef\xbb\xbf \t\r\n").split(b"\n", 1)[0]
        if b'"gonogo"' in first and b'"version"' in first:
            return "gonogo"
        is_ctrf = b'"results"' in data[:65536] and b'"testsuites"' not in data[:4096]
        return "ctrf" if is_ctrf else "gtest-json"
    limit = "one of " + ", ".join(FORMATS)
    raise FieldError("file", data[:60], "has an unknown format; name it", limit=limit)

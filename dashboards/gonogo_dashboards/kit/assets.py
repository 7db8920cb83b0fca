"""The built bundle: file names by entry from Vite's manifest, and the files themselves.

The files are precompressed, and hashed names never change their content.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from mimetypes import guess_type
from pathlib import Path
from typing import Any

from fastapi import Request, Response
from fastapi.responses import FileResponse, PlainTextResponse

from gonogo import urls
from gonogo_service.kit.database.encoding import decode

FOLDER = Path(__file__).parents[1] / "static"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_HASHED = re.compile(r"-[A-Za-z0-9_-]{8}\.[a-z0-9]+$")
_ENCODINGS = (("br", ".br"), ("gzip", ".gz"))
_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
}


class NotBuilt(RuntimeError):
    """The bundle is missing from this installation."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            f"{folder.name}/manifest.json is missing."
            " Run `python -m gonogo_dashboards.build` (it needs node), or install the wheel"
        )


@dataclass(frozen=True)
class Entry:
    """The parts of a page's head: one module script, and style sheets."""

    script: str
    styles: tuple[str, ...]


@lru_cache(maxsize=4)
def _manifest(path: Path, _changed_ns: int) -> dict[str, Any]:
    manifest: dict[str, Any] = decode(path.read_bytes())
    return manifest


def entry(name: str, folder: Path = FOLDER) -> Entry:
    """Return the URLs of an entry ("main", "docs"). Raises NotBuilt where there is no bundle."""
    path = folder / "manifest.json"
    try:
        chunks = _manifest(path, path.stat().st_mtime_ns)
    except FileNotFoundError:
        raise NotBuilt(folder) from None
    chunk = chunks[f"src/{name}.js"]
    styles = [
        style
        for key in (*_imports(chunks, f"src/{name}.js"), f"src/{name}.js")
        for style in chunks[key].get("css", ())
    ]
    # Shared styles come first, so that a page's own styles and the print styles override them.
    # Vite lists them by name.
    shared = {shared_chunk["file"] for key, shared_chunk in chunks.items() if key.startswith("_")}
    ordered = sorted(dict.fromkeys(styles), key=lambda style: style not in shared)
    return Entry(urls.static(chunk["file"]), tuple(urls.static(style) for style in ordered))


def _imports(chunks: dict[str, Any], key: str) -> list[str]:
    imported: list[str] = []
    for name in chunks[key].get("imports", ()):
        imported += [name, *_imports(chunks, name)]
    return imported


def serve(name: str, request: Request, folder: Path = FOLDER) -> Response:
    """Return a built file in the best encoding that the browser accepts.

    Files with hashed names never change their content, so browsers cache them forever.
    """
    path = folder / name
    if not _NAME.fullmatch(name) or name.endswith((".br", ".gz", ".json")) or not path.is_file():
        return PlainTextResponse("No such file", status_code=404)
    headers = {
        "Cache-Control": "public, max-age=31536000, immutable"
        if _HASHED.search(name)
        else "public, max-age=3600",
        "Vary": "Accept-Encoding",
        "X-Content-Type-Options": "nosniff",
    }
    kind = _TYPES.get(path.suffix) or guess_type(name)[0] or "application/octet-stream"
    encodings = accepted(request.headers.get("accept-encoding", ""))
    for encoding, suffix in _ENCODINGS:
        packed = folder / (name + suffix)
        if encoding in encodings and packed.is_file():
            return FileResponse(
                packed, media_type=kind, headers={**headers, "Content-Encoding": encoding}
            )
    return FileResponse(path, media_type=kind, headers=headers)


def accepted(header: str) -> set[str]:
    """Return the encodings of an Accept-Encoding header whose weight isn't 0."""
    encodings = set()
    for part in header.split(","):
        name, _, rest = part.strip().partition(";")
        if not re.fullmatch(r"\s*q=0(\.0*)?\s*", rest):
            encodings.add(name.strip().lower())
    return encodings

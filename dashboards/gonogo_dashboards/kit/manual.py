"""The manual that `make docs` builds: static files below /manual."""

from __future__ import annotations

from pathlib import Path

from fastapi import Request, Response
from fastapi.responses import FileResponse, RedirectResponse

from gonogo import urls

FOLDER = Path(__file__).parents[1] / "manual"


def is_built() -> bool:
    """Return whether this installation has the manual."""
    return (FOLDER / "index.html").is_file()


def serve(request: Request, name: str) -> Response | None:
    """Return a file of the manual, the index of a folder, or None where there is neither.

    Links of its pages are relative, so that a folder's address ends in a slash.
    """
    root = FOLDER.resolve()
    try:
        path = (root / name).resolve()
        if not path.is_relative_to(root):
            return None
        if path.is_dir():
            if not request.url.path.endswith("/"):
                return RedirectResponse(f"{urls.MANUAL}/{name}/" if name else f"{urls.MANUAL}/")
            path /= "index.html"
        if not path.is_file():
            return None
    except OSError:  # a name that is too long for a file
        return None
    return FileResponse(path, headers={"Cache-Control": "public, max-age=300"})

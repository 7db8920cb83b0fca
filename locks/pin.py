"""Write docker-compose.digests.yml from lines "IMAGE "REPOSITORY@sha256:..."" on standard input.

`make pin` calls it with what Docker says of the images that it pulled.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
_SERVICE = re.compile(r"^  (?P<name>[a-z]+):\n(?:(?:    .*)?\n)*?    image: (?P<image>\S+)", re.M)


def overlay(lines: Iterable[str], compose: str) -> str:
    """Return the overlay: each service of `compose` whose image has a digest in `lines`."""
    digests = {image: json.loads(digest) for image, digest in (line.split() for line in lines)}
    text = "# Made by `make pin`; not committed, as a digest is of one day.\nservices:\n"
    for match in _SERVICE.finditer(compose):
        if match["image"] in digests:
            text += f"  {match['name']}:\n    image: {digests[match['image']]}\n"
    return text


if __name__ == "__main__":
    target = ROOT / "docker-compose.digests.yml"
    target.write_text(overlay(sys.stdin, (ROOT / "docker-compose.yml").read_text()))
    print(target.read_text(), end="")

"""`python -m gonogo.pytest_plugin [FOLDER]`: deliver what runs of pytest left over here."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from gonogo.pytest_plugin.delivery import catch_up, is_server


def main(arguments: Sequence[str] | None = None) -> int:
    """Deliver leftover runs; return 0 if nothing is left, else 3."""
    parser = argparse.ArgumentParser(
        "python -m gonogo.pytest_plugin",
        description="Deliver what killed and unsent runs of pytest left over here.",
    )
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        default=Path(),
        help="pytest's root folder; default: this one",
    )
    parser.add_argument(
        "--to",
        metavar="WHERE",
        help="to this server or folder, in the place of each run's own",
    )
    given = parser.parse_args(arguments)
    to = given.to if given.to is None or is_server(given.to) else str(Path(given.to).absolute())
    status = 0
    for worked, words in catch_up(given.folder.absolute(), to=to):
        print(f"{'delivered' if worked else 'not delivered'}: {words}")
        status = status if worked else 3
    return status


if __name__ == "__main__":
    raise SystemExit(main())

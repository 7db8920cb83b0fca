"""`python -m gonogo.cli` is the `gonogo` command."""

from __future__ import annotations

from gonogo.cli.app import main

if __name__ == "__main__":
    main()

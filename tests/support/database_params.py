"""Which databases a test runs on.

Most tests of what happens above the storage layer take `lite_database_url`, which is SQLite: what
they run is tested on both databases below. Those whose SQL or locks differ say BOTH.
"""

from __future__ import annotations

import pytest

DATABASES = ("sqlite", "postgres")
BOTH = pytest.mark.parametrize("lite_database_url", DATABASES, indirect=True)
BOTH_ENGINES = pytest.mark.parametrize("module_engine", DATABASES, indirect=True, scope="module")
"""The same for a module that has one database for all its tests (migrated_database.py)."""

"""Shared fixtures: real Redis and PostgreSQL, a fresh database per test, settings that don't leak,
and skips that a CI may forbid."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from shutil import copyfile
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from sqlalchemy import Engine, make_url

import example_packages
import gonogo.settings
import migrated_files
import postgres_databases
import shared_statements
from gonogo.kernels import registry
from gonogo_service.kit.database import ids
from gonogo_service.kit.database.engine import make_engine
from gonogo_service.operate import schema
from servers import Missing, PostgresServer, RedisServer, running

SLOW: Any = {"deadline": None, "database": None, "suppress_health_check": [HealthCheck.too_slow]}
# the same examples in every run: CI fails by a change, never by chance
hypothesis_settings.register_profile("gonogo", derandomize=True, max_examples=50, **SLOW)
# `make explore`; hypothesis would fix the examples wherever CI is set
NEW: Any = {"derandomize": False, "print_blob": True, **SLOW}
hypothesis_settings.register_profile("nightly", max_examples=500, **NEW)
# `make fuzz`
hypothesis_settings.register_profile("fuzz", max_examples=20_000, **NEW)
hypothesis_settings.load_profile("gonogo")

REQUIRED = {part.strip() for part in os.environ.get("GONOGO_REQUIRE", "").split(",")} - {""}


# Collecting makes millions of objects that stay. The garbage collector looks at them again and
# again, which takes longer than the rest of the collection.
gc.disable()

shared_statements.share()


IN_DEPTH = ("acceptance", "browser", "docs", "hardware", "integration/workers", "simulator")
"""Folders whose tests only `make test-all` runs."""
NEEDS = {"postgres_admin", "private_postgres", "gtest_programs"}
"""Fixtures of what a newcomer need not have; `make test` leaves out the tests that take them."""
WAITING = ("acceptance", "browser", "integration/workers")
"""Folders whose tests mostly wait: for servers, browsers and kills."""
WAITING_SHARE = 0.65
"""The share of the run within which all of their files begin."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `make test` leaves out, and choose the order of files.

    Where several processes run tests, files whose tests wait are mixed with those that compute: the
    processors are then busy from the first test to the last. The files that wait take longer, so
    all of them begin within WAITING_SHARE of the run.
    """
    tests = Path(__file__).parent
    files: dict[bool, list[Path]] = {True: [], False: []}
    for path in dict.fromkeys(item.path for item in items):
        files[path.relative_to(tests).as_posix().startswith(WAITING)].append(path)
    for item in items:
        if item.path.relative_to(tests).as_posix().startswith(IN_DEPTH) or _needs(item):
            item.add_marker(pytest.mark.slow)
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    places = {
        path: place / len(some) * (WAITING_SHARE if is_waiting else 1)
        for is_waiting, some in files.items()
        for place, path in enumerate(some)
    }
    items.sort(key=lambda item: places[item.path])


def _needs(item: pytest.Item) -> bool:
    """Return whether a test takes one of NEEDS, or PostgreSQL as one of several databases."""
    call = getattr(item, "callspec", None)
    values = call.params.values() if call is not None else ()
    is_postgres = any(isinstance(value, str) and value == "postgres" for value in values)
    return is_postgres or not NEEDS.isdisjoint(getattr(item, "fixturenames", ()))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run no test twice where a test has ended its process (scheduling.py)."""
    if config.getvalue("dist") != "loadfile":
        return None
    from scheduling import OnceScheduling

    return OnceScheduling(config, log)


def pytest_collection_finish() -> None:
    """Turn the garbage collector on again, for the objects of the tests alone."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


def pytest_unconfigure() -> None:
    """Leave the objects alone: the end of the process looks for garbage among them for seconds."""
    gc.disable()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a skip whose reason names a part in GONOGO_REQUIRE ("postgres: not installed").

    A CI that requires a part must not be green without its tests.

    No garbage is collected meanwhile. Before Python 3.11.8, `ast.parse` is not reentrant: pytest
    parses a failure's source, and the collector may end a task of Playwright's whose traceback is
    logged, for which its line is parsed. The SystemError would end the run.
    """
    gc.disable()
    try:
        report = yield
    finally:
        gc.enable()
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        part = reason.removeprefix("Skipped: ").split(":")[0].strip().lower()
        if part in REQUIRED:
            report.outcome = "failed"
            report.longrepr = f"{part} is in GONOGO_REQUIRE, so this may not be skipped: {reason}"
    return report


@pytest.fixture(scope="session")
def example_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the packages of examples/, for the path of any process."""
    return example_packages.unpack(tmp_path_factory.mktemp("examples"))


@pytest.fixture
def examples_installed(example_site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The packages of examples/, importable in this process and in those that it starts."""
    path = os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (path, str(example_site)))))
    with example_packages.importable(example_site):
        yield example_site


@pytest.fixture(autouse=True)
def _clean_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Neither the caller's shell nor an earlier test sets a test's settings."""
    for name in os.environ.keys() - gonogo.settings.OUTSIDE_VARIABLES.keys():
        if name.startswith("GONOGO_"):
            monkeypatch.delenv(name)
    gonogo.settings.load.cache_clear()
    yield
    gonogo.settings.load.cache_clear()


@pytest.fixture(autouse=True)
def _ids_of_now() -> Iterator[None]:
    """Forget the last id: after a test that moved the clock ahead, it lies in the future."""
    yield
    ids._last = 0


@pytest.fixture(autouse=True)
def _kernels_of_ours() -> Iterator[None]:
    """Look for no installed kernels after a command of this process has allowed it."""
    yield
    registry.allow_installed(False)


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """One Redis for this test process; tests that restart or kill it take `private_redis`."""
    yield from running(RedisServer)


@pytest.fixture
def redis_url(request: pytest.FixtureRequest) -> str:
    """URL of an empty Redis database."""
    given = os.environ.get("GONOGO_TEST_BROKER_URL")
    url = given or str(request.getfixturevalue("redis_server").url)
    with redis.Redis.from_url(url) as client:
        client.flushdb()
    return url


@pytest.fixture
def private_redis() -> Iterator[RedisServer]:
    """A running Redis for this test alone, which may stop, start or kill it."""
    yield from running(RedisServer)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One PostgreSQL for this test process; tests that restart it take `private_postgres`."""
    yield from running(PostgresServer)


@pytest.fixture(scope="session")
def postgres_admin(request: pytest.FixtureRequest) -> str:
    """URL of the server on which databases are made."""
    given = os.environ.get("GONOGO_TEST_DATABASE_URL")
    return given or str(request.getfixturevalue("postgres_server").url())


@pytest.fixture(scope="session")
def postgres_template(postgres_admin: str) -> Iterator[str]:
    """Name of a migrated database: migrating takes ten times as long as copying."""
    with postgres_databases.fresh(postgres_admin) as (url, name):
        _migrate(url)
        yield name


@pytest.fixture(scope="session")
def postgres_pool(postgres_admin: str, postgres_template: str) -> Iterator[postgres_databases.Pool]:
    """Copies of the migrated database: each is emptied after a test and lent to a later one."""
    pool = postgres_databases.Pool(postgres_admin, postgres_template)
    yield pool
    pool.close()


@pytest.fixture(scope="session")
def sqlite_template() -> Path:
    """Path of a migrated SQLite file that tests get copies of."""
    return migrated_files.template()


def _migrate(url: str) -> None:
    database_engine = make_engine(url)
    schema.upgrade(database_engine)
    database_engine.dispose()


@pytest.fixture
def postgres_url(postgres_admin: str) -> Iterator[str]:
    """URL of a fresh, empty PostgreSQL database."""
    with postgres_databases.fresh(postgres_admin) as (url, _):
        yield url


@pytest.fixture
def migrated_postgres_url(postgres_pool: postgres_databases.Pool) -> Iterator[str]:
    """URL of a PostgreSQL database with our tables and nothing in them."""
    with postgres_pool.one() as url:
        yield url


@pytest.fixture
def unused_postgres_url(postgres_admin: str, postgres_template: str) -> Iterator[str]:
    """URL of a migrated PostgreSQL database that no test has used.

    Its query plans depend only on the rows that this test inserts.
    """
    with postgres_databases.fresh(postgres_admin, postgres_template) as (url, _):
        yield url


@pytest.fixture
def private_postgres() -> Iterator[PostgresServer]:
    """A running PostgreSQL for this test alone, which may stop, start or kill it."""
    yield from running(PostgresServer)


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all test processes of this run, for what one of them makes for all."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base


@pytest.fixture(scope="session")
def gtest_programs(shared_folder: Path) -> dict[str, Path]:
    """The GoogleTest programs of tests/gtest by name, built once for all test processes."""
    from gtest_programs import build  # here: few processes need all that it imports

    try:
        return build(shared_folder / "gtest-programs")
    except Missing as problem:
        pytest.skip(str(problem))


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """URL of an SQLite file that doesn't exist yet."""
    return f"sqlite:///{tmp_path / 'gonogo.sqlite'}"


@pytest.fixture
def migrated_sqlite_url(sqlite_url: str, sqlite_template: Path) -> str:
    """URL of an SQLite file with our tables."""
    copyfile(sqlite_template, str(make_url(sqlite_url).database))
    return sqlite_url


@pytest.fixture(params=["sqlite", "postgres"])
def empty_database_url(request: pytest.FixtureRequest) -> str:
    """URL of an empty database: the test runs once on SQLite and once on PostgreSQL."""
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest) -> str:
    """URL of a database with our empty tables: the test runs on SQLite and on PostgreSQL."""
    return str(request.getfixturevalue(f"migrated_{request.param}_url"))


@pytest.fixture
def lite_database_url(request: pytest.FixtureRequest) -> str:
    """URL of an SQLite database with our empty tables, or of both (database_params.py)."""
    return str(request.getfixturevalue(f"migrated_{getattr(request, 'param', 'sqlite')}_url"))


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    database_engine = make_engine(database_url)
    yield database_engine
    database_engine.dispose()

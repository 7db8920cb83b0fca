"""Every setting of the project in one typed place, read from GONOGO_* variables.

Imported by storage, workers, service, dashboards and cli; imports nothing of ours. docs/settings.md holds the same table, and a test
compares the two: a setting without a documented meaning fails it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, PositiveFloat, PositiveInt, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

PREFIX = "GONOGO_"

# Read by tests and by kernels' processes only, never by a running service; documented beside the settings.
OUTSIDE_VARIABLES = {
    "GONOGO_BUILD": "set by a worker for the process that runs kernels: command, options and suites of its build, as JSON",
    "GONOGO_TEST_DATABASE_URL": "tests: a PostgreSQL server to use instead of a private one; its role may create databases",
    "GONOGO_TEST_BROKER_URL": "tests: a Redis database to use instead of a private one; it is flushed before each test",
    "GONOGO_TEST_TORCH_PYTHON": "tests: an interpreter with torch, for the tests of the torch executor (`make torch` makes one)",
    "GONOGO_REQUIRE": "tests: comma-separated parts (chromium, postgres, redis, ...) whose absence fails a test instead of skipping it",
}


class Settings(BaseSettings):
    """Typed settings; a field `x` is read from GONOGO_X. Frozen: a process reads its settings once, at its start."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="ignore", env_ignore_empty=True)

    embedded: bool = Field(False, description="set by `gonogo up` for its children: SQLite, private Redis, no login on loopback")
    database_url: str | None = Field(None, description="SQLAlchemy URL of the database: `postgresql+psycopg://...` or `sqlite:///...`")
    broker_url: str | None = Field(None, description="Redis URL of the queues: `redis://...`, `rediss://...` or `unix:///path/to/socket`")
    secret_key: SecretStr | None = Field(
        None, description="key of sessions, CSRF tokens and the keyed hashes of tokens; at least 32 characters"
    )
    worker_key: SecretStr | None = Field(
        None, description="key that signs the messages between service and workers; at least 32 characters"
    )
    url: str | None = Field(
        None, description="the service's own address, for links and for the command line, such as `https://gonogo.example.org`"
    )
    token: SecretStr | None = Field(None, description="command line: bearer token sent to the server")
    host: str = Field("127.0.0.1", description="address that the API binds")
    port: int = Field(8717, ge=0, le=65535, description="port that the API binds; 0 takes any free one")
    hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        ("localhost", "127.0.0.1", "[::1]"), description="comma-separated Host names that the API answers to"
    )
    proxies: Annotated[tuple[str, ...], NoDecode] = Field(
        (), description="comma-separated addresses of reverse proxies whose X-Forwarded-* headers are believed"
    )
    var_dir: str = Field("var", description="folder of the embedded service: database, keys, logs, `up.json`")
    spool_dir: str | None = Field(None, description="folder where a worker keeps results that it can't send; default `spool` in `var_dir`")
    numba_cache_dir: str | None = Field(
        None, description="folder of compiled code; default beside the source, else in the user's cache folder"
    )
    builds: str | None = Field(None, description="worker: the TOML file that says what a build's name means on this host")
    executors: str = Field("", description="worker: plug-ins, comma-separated `name=package.module:Factory@/path/to/python`")
    arch: str = Field("wormhole", description="worker: architecture of its device, part of the queue's name")
    board: str = Field("n150", description="worker: board of its device, part of the queue's name")
    lock_dir: str | None = Field(None, description="worker: folder of the devices' lock files; default `locks` in `var_dir`")
    max_elements: PositiveInt = Field(64 * 2**20, description="largest number of elements of a test's shape")
    max_seeds: PositiveInt = Field(100_000, description="largest number of (seed, repeat) pairs of a job")
    max_body_bytes: PositiveInt = Field(2**20, description="largest body of a request, in bytes")
    per_seed_deadline_s: PositiveFloat = Field(600.0, description="a seed that takes longer is a `hang`")
    heartbeat_s: PositiveFloat = Field(5.0, description="a worker says this often that it lives")
    heartbeat_timeout_s: PositiveFloat = Field(30.0, description="an attempt without a heartbeat for this long is lost")
    poll_s: PositiveFloat = Field(1.0, description="the dispatcher looks into the database at least this often, doorbell or not")
    chunk_seconds: PositiveFloat = Field(20.0, description="estimated device time of one chunk of a job")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="least level that is logged")

    @field_validator("hosts", "proxies", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("broker_url")
    @classmethod
    def _broker(cls, value: str | None) -> str | None:
        if value is None:
            return None
        if value.startswith("redis+socket://"):
            value = "unix://" + value.removeprefix("redis+socket://").replace("virtual_host=", "db=")
        if urlsplit(value).scheme not in {"redis", "rediss", "unix"}:
            raise ValueError("must be a redis://, rediss:// or unix:// URL")
        return value

    @field_validator("secret_key", "worker_key")
    @classmethod
    def _long_enough(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and len(value.get_secret_value()) < 32:
            raise ValueError("must have at least 32 characters")
        return value

    @model_validator(mode="after")
    def _beats(self) -> Settings:
        if self.heartbeat_timeout_s < 2 * self.heartbeat_s:
            raise ValueError("heartbeat_timeout_s must be at least twice heartbeat_s: one late message would lose an attempt")
        return self


@lru_cache(maxsize=1)
def load() -> Settings:
    """The settings of this process (cached; tests call `load.cache_clear()`). Raises pydantic.ValidationError on a wrong value."""
    return Settings()  # pyright: ignore[reportCallIssue]

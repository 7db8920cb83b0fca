"""Every setting of the project in one typed place, read from GONOGO_* variables.

Secrets may come from files instead (`secrets`). An error never shows a value: what stands in a
setting by mistake may be a secret.

Every part of the project imports this package, which imports nothing else of ours. docs/settings.md
holds the same table, and a test compares the two: a setting without a documented meaning fails it.
"""

from __future__ import annotations

import os
import re
from base64 import b64decode
from collections.abc import Mapping
from difflib import get_close_matches
from functools import lru_cache
from ipaddress import ip_network
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from gonogo.settings import secrets
from gonogo.settings.secrets import SettingsError as SettingsError

PREFIX = "GONOGO_"
SECRET: dict[str, Any] = {"secret": True}
"""Marks a setting that may hold a password although it is no SecretStr."""
_PASSED_ON = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\*?", re.ASCII)

# Read by tests and by kernels' processes only, never by a running service; documented beside the
# settings.
OUTSIDE_VARIABLES = {
    "GONOGO_BUILD": (
        "set by a worker for the process that runs kernels: command, options and suites of its "
        "build, as JSON"
    ),
    "GONOGO_CHROMIUM": (
        "tests, pictures and measured pages: the browser; default Chromium on PATH, for tests its "
        "headless shell where there is one"
    ),
    "GONOGO_DUMP_DIR": (
        "set by a worker for gtest and pytest suites: the folder into which tests hand arrays over"
    ),
    "GONOGO_ITERATION": "set by a worker for the tests of a suite: the number of the iteration",
    "GONOGO_PACKAGE": (
        "set in the pipelines that the manual shows (manual: ci_github): what pip installs there"
    ),
    "GONOGO_SECRETS_FD": (
        "set by a GoNoGo process for one that it starts, or for itself: the pipe with its secrets"
    ),
    "GONOGO_SEED": "set by a worker for the tests of a suite: the seed, where it is controlled",
    "GONOGO_TEST_DATABASE_URL": (
        "tests: a PostgreSQL server to use instead of a private one; its role may create databases"
    ),
    "GONOGO_TEST_BROKER_URL": (
        "tests: a Redis database to use instead of a private one; it is flushed before each test"
    ),
    "GONOGO_TEST_BUILDS": "tests: the builds file of a host with a real card, for tests/hardware",
    "GONOGO_SIM_DIR": (
        "`make wormhole-sim`: the folder of the simulated Wormhole; default "
        "`gonogo/wormhole-sim` in the user's cache folder"
    ),
    "GONOGO_SIM_PYTHON": (
        "`make wormhole-sim`: its interpreter, Python 3.12 or 3.10; default the first on PATH "
        "that runs"
    ),
    "GONOGO_TEST_TORCH_PYTHON": (
        "tests: an interpreter with torch, for the tests of the torch executor (`make torch` "
        "makes one)"
    ),
    "GONOGO_REQUIRE": (
        "tests: comma-separated parts (chromium, postgres, redis, ...) whose absence fails a "
        "test instead of skipping it"
    ),
}


class Settings(BaseSettings):
    """Typed settings; a field `x` is read from GONOGO_X.

    Frozen: a process reads its settings once, when it starts.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="ignore", env_ignore_empty=True
    )

    embedded: bool = Field(
        False,
        description=(
            "set by `gonogo up` for its children: SQLite, private Redis, no login on loopback"
        ),
    )
    loopback_login: bool = Field(
        False,
        description=(
            "set by `gonogo up --token-file`: the embedded service asks for a login on loopback"
        ),
    )
    database_url: str | None = Field(
        None,
        description="SQLAlchemy URL of the database: `postgresql+psycopg://...` or `sqlite:///...`",
        json_schema_extra=SECRET,
    )
    broker_url: str | None = Field(
        None,
        description=(
            "Redis URL of the queues: `redis://...`, `rediss://...` or `unix:///path/to/socket`"
        ),
        json_schema_extra=SECRET,
    )
    secret_key: SecretStr | None = Field(
        None,
        description=(
            "key of sessions, CSRF tokens and the keyed hashes of tokens, those of hosts too; at "
            "least 32 characters"
        ),
    )
    url: str | None = Field(
        None,
        description=(
            "the service's own address, for links and for the command line, such as "
            "`https://gonogo.example.org`"
        ),
    )
    token: SecretStr | None = Field(
        None, description="command line: bearer token sent to the server"
    )
    webhook_secret: SecretStr | None = Field(
        None,
        description=(
            "command line: the subscription's secret (`whsec_...`) for `gonogo webhooks verify`"
        ),
    )
    host: str = Field("127.0.0.1", description="address that the API binds")
    port: int = Field(
        8717, ge=0, le=65535, description="port that the API binds; 0 takes any free one"
    )
    hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        ("localhost", "127.0.0.1", "[::1]"),
        description="comma-separated Host names that the API answers to",
    )
    proxies: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description=(
            "comma-separated addresses or networks of reverse proxies whose X-Forwarded-* headers "
            "are believed, such as `127.0.0.1,172.18.0.0/16`; never `*`"
        ),
    )
    var_dir: str = Field(
        "var",
        description=(
            "folder of the embedded service: database, keys, logs, `up.json`; of a device host: "
            "its token `host.json`, and what its workers remember"
        ),
    )
    ca_file: str | None = Field(
        None,
        description=(
            "file with the certificate of the authority that signs the service's, where it is a "
            "lab's own; on the server, the codes of `gonogo hosts add` have its fingerprint"
        ),
    )
    builds: str | None = Field(
        None, description="worker: the TOML file that says what a build's name means on this host"
    )
    kernels: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description=(
            "comma-separated kernels that the service and its workers load besides those that we "
            "ship: names that installed packages offer, and absolute paths of Python files "
            "(manual: own_kernel); local commands and pytest need no such list"
        ),
    )
    executors: str = Field(
        "",
        description=(
            "worker: plug-ins, comma-separated `name=package.module:Factory@/path/to/python`, or "
            "the name of an entry point `gonogo.executors`"
        ),
    )
    arch: str = Field(
        "wormhole", description="worker: architecture of its device, part of the queue's name"
    )
    board: str = Field("n150", description="worker: board of its device, part of the queue's name")
    lock_dir: str | None = Field(
        None, description="worker: folder of the devices' lock files; default `locks` in `var_dir`"
    )
    tt_smi: str = Field(
        "tt-smi", description="worker: the program that tells and resets this host's chips"
    )
    tt_triage: str | None = Field(
        None,
        description=(
            "worker: command run on a hang, before the process is killed; default "
            "`$TT_METAL_HOME/tools/tt-triage.py`"
        ),
    )
    reset_device: str | None = Field(
        None,
        description=(
            "worker: command that resets a device (`{index}`, `{pci}`, `{serial}`, `{name}`); "
            "for a chip `tt-smi -r {index}`"
        ),
    )
    reload_driver: str | None = Field(
        None, description="worker: command tried next, such as one that reloads the kernel driver"
    )
    reset_host: str | None = Field(
        None, description="worker: command tried last, such as one that asks the power switch"
    )
    canary_every_s: NonNegativeFloat = Field(
        21600.0,
        description=(
            "worker: the canary runs before a chunk when the last one was this long ago; 0: never"
        ),
    )
    canary_every_jobs: NonNegativeInt = Field(
        0, description="worker: or this many chunks ago; 0: never"
    )
    retest_s: PositiveFloat = Field(
        60.0,
        description=(
            "worker: a bad device tests itself again after this long, then after twice as "
            "long, up to an hour"
        ),
    )
    chunk_deadline_s: PositiveFloat = Field(
        7200.0, description="an attempt that runs longer is stopped; what is missing is tried again"
    )
    child_memory_bytes: PositiveInt | None = Field(
        None,
        description=(
            "worker: memory that each process of a kernel may allocate (RLIMIT_DATA); default: "
            "no limit"
        ),
    )
    child_variables: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description=(
            "worker and local commands: comma-separated further variables that kernels' processes "
            "get, such as `KERNELS_STORE,MYLIB_*` (manual: executors)"
        ),
    )
    child_user: str | None = Field(
        None,
        description=(
            "worker: the user that kernels run as, by name or number, and further groups, such as "
            "`gonogo-kernel:tenstorrent`, so that kernels can't read the worker's files "
            "(manual: devices); default: the worker's own user"
        ),
    )
    max_elements: PositiveInt = Field(
        64 * 2**20, description="largest number of elements of a test's shape"
    )
    max_seeds: PositiveInt = Field(
        100_000, description="largest number of (seed, repeat) pairs of a job"
    )
    max_gauge_runs: PositiveInt = Field(
        2000, description="largest number of (seed, part) pairs of a gauge"
    )
    quota_open_jobs: NonNegativeInt = Field(
        1000, description="open jobs, gauges and bisections of a token; 0: no limit"
    )
    quota_device_s: NonNegativeFloat = Field(
        1e6,
        description="estimated device seconds of a token that no worker has started; 0: no limit",
    )
    quota_artifact_bytes: NonNegativeInt = Field(
        10 * 2**30,
        description="bytes of artifacts of the jobs that a token made within a day; 0: no limit",
    )
    quota_requests: NonNegativeInt = Field(
        6000, description="requests of a token in a minute, for each process; 0: no limit"
    )
    public_badges: bool = Field(
        False,
        description=(
            "everybody may see the badges below `/badges`: names of tests, suites and branches "
            "with their newest results"
        ),
    )
    waiver_days: PositiveInt = Field(
        90,
        le=3650,
        description=(
            "a waiver or an acknowledgement lasts this many days from now at the most; it can be "
            "renewed"
        ),
    )
    token_days: PositiveInt = Field(
        90, le=36500, description="a token ends after this many days unless an admin says otherwise"
    )
    max_token_days: PositiveInt | None = Field(
        None,
        le=36500,
        description="the longest life of a token; default: any, also a token that never ends",
    )
    max_body_bytes: PositiveInt = Field(2**20, description="largest body of a request, in bytes")
    max_delivery_bytes: PositiveInt = Field(
        5 * 2**20, description="largest incoming delivery of a CI system, in bytes"
    )
    body_deadline_s: PositiveFloat = Field(
        30.0,
        description=(
            "a body must arrive within this time; a delivery within 10 s, an uploaded file within "
            "four times as long"
        ),
    )
    read_timeout_s: PositiveFloat = Field(
        30.0, description="a statement that reads for a page or an answer ends after this time"
    )
    max_connections: PositiveInt = Field(
        500,
        description=(
            "connections, and requests, of each HTTP process at once; further requests get 503. "
            "Their shares by address are the proxy's"
        ),
    )
    max_import_bytes: PositiveInt = Field(
        32 * 2**20, description="largest file of `POST /imports`, in bytes"
    )
    per_seed_deadline_s: PositiveFloat = Field(
        600.0,
        description="a seed that takes longer is a `hang`; the limit is shorter where 20 times"
        " what a seed is expected to take, at least 30 s (150 s for a child's first seed), is less",
    )
    heartbeat_s: PositiveFloat = Field(5.0, description="a worker says this often that it lives")
    heartbeat_timeout_s: PositiveFloat = Field(
        30.0, description="an attempt without a heartbeat for this long is lost"
    )
    poll_s: PositiveFloat = Field(
        1.0,
        description="the dispatcher reads the database at least this often, notified or not",
    )
    chunk_seconds: PositiveFloat = Field(
        20.0, description="estimated device time of one chunk of a job"
    )
    keep_artifacts_days: NonNegativeInt = Field(
        90,
        le=36500,
        description="artifacts and logs of a job stay this long after its end; 0: for ever",
    )
    keep_seeds_days: NonNegativeInt = Field(
        400,
        le=36500,
        description=(
            "results per seed of a job stay this long after its end; its counts and statistics "
            "stay longer; 0: for ever"
        ),
    )
    keep_builds: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description=(
            "comma-separated builds whose jobs lose nothing, such as releases that others are "
            "compared with; `*` stands for any text"
        ),
    )
    webhook_private: Annotated[tuple[str, ...], NoDecode] = Field(
        (),
        description=(
            "comma-separated networks that are not public and that webhooks may be sent to "
            "anyway, such as `10.1.0.0/16`"
        ),
    )
    github_token: SecretStr | None = Field(
        None, description="token that sets commit statuses and writes comments on GitHub"
    )
    github_app_id: str | None = Field(
        None,
        description="GitHub App in whose name it is done where it is installed, with check runs",
    )
    github_app_key: SecretStr | None = Field(
        None, description="the App's private key: PEM text, or the path of a file with it"
    )
    github_url: str = Field(
        "https://api.github.com",
        description="GitHub's REST API; GitHub Enterprise Server: `https://host/api/v3`",
    )
    github_webhook_secret: SecretStr | None = Field(
        None,
        description=(
            "secret of GitHub's webhooks; several, comma-separated, while one replaces the "
            "other; without one none is taken"
        ),
    )
    ci_webhook_secret: SecretStr | None = Field(
        None,
        description=(
            "`whsec_...` secret of other CI systems' deliveries (Standard Webhooks); several, "
            "comma-separated"
        ),
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="least level that is logged"
    )

    def __init__(self, **values: Any) -> None:
        """Check the values. Raises SettingsError, which names each wrong setting, not its value."""
        try:
            super().__init__(**values)
        except ValidationError as problem:
            raise SettingsError(_in_words(problem)) from None

    @field_validator(
        "hosts",
        "proxies",
        "webhook_private",
        "kernels",
        "child_variables",
        "keep_builds",
        mode="before",
    )
    @classmethod
    def _split(cls, value: object) -> object:
        return (
            tuple(part.strip() for part in value.split(",") if part.strip())
            if isinstance(value, str)
            else value
        )

    @field_validator("broker_url")
    @classmethod
    def _broker(cls, value: str | None) -> str | None:
        if value is None:
            return None
        if value.startswith("redis+socket://"):
            value = "unix://" + value.removeprefix("redis+socket://").replace(
                "virtual_host=", "db="
            )
        if _scheme(value) not in {"redis", "rediss", "unix"}:
            raise ValueError("must be a redis://, rediss:// or unix:// URL")
        return value

    @field_validator("database_url")
    @classmethod
    def _database(cls, value: str | None) -> str | None:
        # not taken apart: SQLAlchemy takes passwords with a slash in them
        scheme = "" if value is None else value.partition("://")[0].partition("+")[0]
        if value is not None and scheme not in {"postgres", "postgresql", "sqlite"}:
            raise ValueError("must be a postgresql+psycopg:// or sqlite:/// URL")
        return value

    @field_validator("url")
    @classmethod
    def _address(cls, value: str | None) -> str | None:
        if value is not None and _scheme(value) not in {"http", "https"}:
            raise ValueError(
                "must be an http:// or https:// URL with a host, such as http://127.0.0.1:8717"
            )
        return value

    @field_validator("webhook_private")
    @classmethod
    def _networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for number, text in enumerate(value, 1):
            try:
                ip_network(text)
            except ValueError:
                raise ValueError(f"number {number} is no network such as 10.1.0.0/16") from None
        return value

    @field_validator("proxies")
    @classmethod
    def _narrow_networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for number, text in enumerate(value, 1):
            if not is_network(text):
                raise ValueError(
                    f"number {number} is no address or network of a proxy (allowed: such as "
                    "127.0.0.1 or 172.18.0.0/16; neither a name nor all addresses, whose senders "
                    "could call themselves anything)"
                )
        return value

    @field_validator("child_variables")
    @classmethod
    def _named(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for number, text in enumerate(value, 1):
            if not _PASSED_ON.fullmatch(text) or text.startswith(PREFIX):
                raise ValueError(
                    f"number {number} must be a variable's name, or its beginning and *; "
                    "GONOGO_ variables are never passed on"
                )
        return value

    @field_validator("github_url")
    @classmethod
    def _github(cls, value: str) -> str:
        parts = urlsplit(value)
        if (
            parts.scheme not in {"http", "https"}
            or not parts.hostname
            or parts.query
            or parts.fragment
        ):
            raise ValueError("must be an http:// or https:// URL with a host")
        return value.rstrip("/")

    @field_validator("github_webhook_secret")
    @classmethod
    def _guessed_by_nobody(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and any(
            len(part.strip()) < 16 for part in value.get_secret_value().split(",")
        ):
            raise ValueError("each secret must have at least 16 characters")
        return value

    @field_validator("ci_webhook_secret")
    @classmethod
    def _standard(cls, value: SecretStr | None) -> SecretStr | None:
        for part in () if value is None else value.get_secret_value().split(","):
            try:
                size = len(b64decode(part.strip().removeprefix("whsec_"), validate=True))
            except ValueError:
                size = 0
            if not 24 <= size <= 64:
                raise ValueError("each secret must be whsec_ and base64 of 24 to 64 bytes")
        return value

    @field_validator("secret_key")
    @classmethod
    def _long_enough(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and len(value.get_secret_value()) < 32:
            raise ValueError("must have at least 32 characters")
        return value

    @model_validator(mode="after")
    def _beats(self) -> Settings:
        if self.heartbeat_timeout_s < 2 * self.heartbeat_s:
            raise ValueError(
                "heartbeat_timeout_s must be at least twice heartbeat_s: one late message "
                "would lose an attempt"
            )
        return self


def is_network(text: str) -> bool:
    """Return whether a text is an address or a network, and not all addresses."""
    try:
        return ip_network(text).prefixlen > 0
    except ValueError:
        return False


def _scheme(url: str) -> str:
    """Return the scheme of a URL that can be taken apart, else ""; urlsplit's errors quote parts.

    Such a part may be a password: one with a slash in it ends the host and becomes the port.
    """
    try:
        parts = urlsplit(url)
        fits = parts.port is None or parts.port > 0
    except ValueError:
        return ""
    return parts.scheme if fits and (parts.hostname or parts.scheme == "unix") else ""


def _in_words(problem: ValidationError) -> str:
    """Return what is wrong with each setting: its variable and what is allowed, not its value."""
    words = []
    for error in problem.errors(include_url=False, include_input=False, include_context=False):
        name = str(error["loc"][0]) if error["loc"] else ""
        reason = str(error["msg"]).removeprefix("Value error, ")
        words.append(f"{secrets.variable(name)}: {reason}" if name else reason)
    return "; ".join(words) + " (manual: settings)"


def secret_names() -> tuple[str, ...]:
    """Return the settings that hold secrets."""
    return tuple(
        name
        for name, field in Settings.model_fields.items()
        if field.json_schema_extra == SECRET or "SecretStr" in str(field.annotation)
    )


def known_variables() -> set[str]:
    """Return every variable with our prefix that somebody reads."""
    files = {secrets.variable(name) + secrets.FILE_SUFFIX for name in secret_names()}
    return {secrets.variable(name) for name in Settings.model_fields} | files | {*OUTSIDE_VARIABLES}


def unread(environment: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the variables with our prefix that nobody reads, with the names that are meant."""
    known = known_variables()
    strange = sorted(name for name in environment if name.startswith(PREFIX) and name not in known)
    return {name: get_close_matches(name, known, n=1) for name in strange}


@lru_cache(maxsize=1)
def load() -> Settings:
    """Return this process's settings (cached; tests call `load.cache_clear()`).

    Raises SettingsError for a wrong value.
    """
    secrets.receive(os.environ)
    return Settings(**secrets.read(os.environ, secret_names()))

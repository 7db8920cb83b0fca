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
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import lru_cache
from ipaddress import ip_network
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    SecretStr,
    ValidationError,
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


def _split(value: object) -> object:
    if not isinstance(value, str):
        return value
    return tuple(part.strip() for part in value.split(",") if part.strip())


Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]
"""Comma-separated."""


def _must(fits: Callable[[str], bool], words: str) -> AfterValidator:
    """Return a check of a text or a secret: what it must do, without its value."""

    def check(value: str | SecretStr | None) -> str | SecretStr | None:
        text = value.get_secret_value() if isinstance(value, SecretStr) else value
        if text is not None and not fits(text):
            raise ValueError(f"must {words}")
        return value

    return AfterValidator(check)


_IN_A_HEADER = _must(
    lambda text: text.isascii() and text.isprintable(),
    "have printable ASCII characters only, no line break",
)
"""A token that can't be sent would be shown by the library that refuses it."""


def _each_name(fits: Callable[[str], bool], words: str) -> AfterValidator:
    """Return a check of every name."""

    def check(names: tuple[str, ...]) -> tuple[str, ...]:
        for number, name in enumerate(names, 1):
            if not fits(name):
                raise ValueError(f"number {number} {words}")
        return names

    return AfterValidator(check)


def _each_part(fits: Callable[[str], bool]) -> Callable[[str], bool]:
    return lambda text: all(fits(part.strip()) for part in text.split(","))


def _has_scheme(*schemes: str) -> Callable[[str], bool]:
    """Return whether a URL can be taken apart, and has one of these schemes and a host."""

    def fits(url: str) -> bool:
        try:
            parts = urlsplit(url)
            has_port = parts.port is None or parts.port > 0
        except ValueError:  # such as a password with a slash in it
            return False
        is_whole = bool(parts.hostname) or parts.scheme == "unix"
        return has_port and is_whole and parts.scheme in schemes

    return fits


def _is_api(url: str) -> bool:
    return _has_scheme("http", "https")(url) and not {"?", "#"}.intersection(url)


def _is_database(url: str) -> bool:
    # not taken apart: SQLAlchemy takes passwords with a slash in them
    scheme = url.partition("://")[0].partition("+")[0]
    return scheme in {"postgres", "postgresql", "sqlite"}


def _as_redis_py(value: object) -> object:
    """Return Celery's spelling of a socket as that of redis-py."""
    prefix = "redis+socket://"
    if not isinstance(value, str) or not value.startswith(prefix):
        return value
    return "unix://" + value.removeprefix(prefix).replace("virtual_host=", "db=")


def _is_any_network(text: str) -> bool:
    try:
        ip_network(text)
    except ValueError:
        return False
    return True


def is_network(text: str) -> bool:
    """Return whether a text is an address or a network, and not all addresses."""
    return _is_any_network(text) and ip_network(text).prefixlen > 0


def _is_passed_on(text: str) -> bool:
    return bool(_PASSED_ON.fullmatch(text)) and not text.startswith(PREFIX)


def _is_standard(secret: str) -> bool:
    try:
        return 24 <= len(b64decode(secret.removeprefix("whsec_"), validate=True)) <= 64
    except ValueError:
        return False


NARROW = (
    "is no address or network of a proxy (allowed: such as 127.0.0.1 or 172.18.0.0/16; neither a "
    "name nor all addresses, whose senders could call themselves anything)"
)
PASSED_ON = (
    "must be a variable's name, or its beginning and *; GONOGO_ variables are never passed on"
)


class Settings(BaseSettings):
    """Typed settings; a field `x` is read from GONOGO_X.

    Frozen: a process reads its settings once, when it starts.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="ignore", env_ignore_empty=True
    )

    embedded: bool = False
    """set by `gonogo up` for its children: SQLite, private Redis, no login on loopback"""
    loopback_login: bool = False
    """set by `gonogo up --token-file`: the embedded service asks for a login on loopback"""
    database_url: Annotated[
        str | None, _must(_is_database, "be a postgresql+psycopg:// or sqlite:/// URL")
    ] = Field(None, json_schema_extra=SECRET)
    """SQLAlchemy URL of the database: `postgresql+psycopg://...` or `sqlite:///...`"""
    broker_url: Annotated[
        str | None,
        BeforeValidator(_as_redis_py),
        _must(_has_scheme("redis", "rediss", "unix"), "be a redis://, rediss:// or unix:// URL"),
    ] = Field(None, json_schema_extra=SECRET)
    """Redis URL of the queues: `redis://...`, `rediss://...` or `unix:///path/to/socket`"""
    secret_key: Annotated[
        SecretStr | None, _must(lambda text: len(text) >= 32, "have at least 32 characters")
    ] = None
    """key of sessions, CSRF tokens and the keyed hashes of tokens, those of hosts too; at least 32
    characters"""
    url: Annotated[
        str | None,
        _must(
            _has_scheme("http", "https"),
            "be an http:// or https:// URL with a host, such as http://127.0.0.1:8717",
        ),
    ] = None
    """the service's own address, for links and for the command line, such as
    `https://gonogo.example.org`"""
    token: Annotated[SecretStr | None, _IN_A_HEADER] = None
    """command line: bearer token sent to the server"""
    webhook_secret: SecretStr | None = None
    """command line: the subscription's secret (`whsec_...`) for `gonogo webhooks verify`"""
    host: str = "127.0.0.1"
    """address that the API binds"""
    port: int = Field(8717, ge=0, le=65535)
    """port that the API binds; 0 takes any free one"""
    hosts: Names = ("localhost", "127.0.0.1", "[::1]")
    """comma-separated Host names that the API answers to"""
    proxies: Annotated[Names, _each_name(is_network, NARROW)] = ()
    """comma-separated addresses or networks of reverse proxies whose X-Forwarded-* headers are
    believed, such as `127.0.0.1,172.18.0.0/16`; never `*`"""
    var_dir: str = "var"
    """folder of the embedded service: database, keys, logs, `up.json`; of a device host: its token
    `host.json`, and what its workers remember"""
    ca_file: str | None = None
    """file with the certificate of the authority that signs the service's, where it is a lab's own;
    on the server, the codes of `gonogo hosts add` have its fingerprint"""
    builds: str | None = None
    """worker: the TOML file that says what a build's name means on this host"""
    kernels: Names = ()
    """comma-separated kernels that the service and its workers load besides those that we ship:
    names that installed packages offer, and absolute paths of Python files (manual: own_kernel);
    local commands and pytest need no such list"""
    executors: str = ""
    """worker: plug-ins, comma-separated `name=package.module:Factory@/path/to/python`, or the name
    of an entry point `gonogo.executors`"""
    arch: str = "wormhole"
    """worker: architecture of its device, part of the queue's name"""
    board: str = "n150"
    """worker: board of its device, part of the queue's name"""
    lock_dir: str | None = None
    """worker: folder of the devices' lock files; default `locks` in `var_dir`"""
    tt_smi: str = "tt-smi"
    """worker: the program that tells and resets this host's chips"""
    tt_triage: str | None = None
    """worker: command run on a hang, before the process is killed; default
    `$TT_METAL_HOME/tools/tt-triage.py`"""
    reset_device: str | None = None
    """worker: command that resets a device (`{index}`, `{pci}`, `{serial}`, `{name}`); for a chip
    `tt-smi -r {index}`"""
    reload_driver: str | None = None
    """worker: command tried next, such as one that reloads the kernel driver"""
    reset_host: str | None = None
    """worker: command tried last, such as one that asks the power switch"""
    canary_every_s: NonNegativeFloat = 21600.0
    """worker: the canary runs before a chunk when the last one was this long ago; 0: never"""
    canary_every_jobs: NonNegativeInt = 0
    """worker: or this many chunks ago; 0: never"""
    retest_s: PositiveFloat = 60.0
    """worker: a bad device tests itself again after this long, then after twice as long, up to an
    hour"""
    chunk_deadline_s: PositiveFloat = 7200.0
    """an attempt that runs longer is stopped; what is missing is tried again"""
    child_memory_bytes: PositiveInt | None = None
    """worker: memory that each process of a kernel may allocate (RLIMIT_DATA); default: no limit"""
    child_variables: Annotated[Names, _each_name(_is_passed_on, PASSED_ON)] = ()
    """worker and local commands: comma-separated further variables that kernels' processes get,
    such as `KERNELS_STORE,MYLIB_*` (manual: executors)"""
    child_user: str | None = None
    """worker: the user that kernels run as, by name or number, and further groups, such as
    `gonogo-kernel:tenstorrent`, so that kernels can't read the worker's files (manual: devices);
    default: the worker's own user"""
    max_elements: PositiveInt = 64 * 2**20
    """largest number of elements of a test's shape"""
    max_seeds: PositiveInt = 100_000
    """largest number of (seed, repeat) pairs of a job"""
    max_gauge_runs: PositiveInt = 2000
    """largest number of (seed, part) pairs of a gauge"""
    quota_open_jobs: NonNegativeInt = 1000
    """open jobs, gauges and bisections of a token; 0: no limit"""
    quota_device_s: NonNegativeFloat = 1e6
    """estimated device seconds of a token that no worker has started; 0: no limit"""
    quota_artifact_bytes: NonNegativeInt = 10 * 2**30
    """bytes of artifacts of the jobs that a token made within a day; 0: no limit"""
    quota_requests: NonNegativeInt = 6000
    """requests of a token in a minute, for each process; 0: no limit"""
    public_badges: bool = False
    """everybody may see the badges below `/badges`: names of tests, suites and branches with their
    newest results"""
    waiver_days: PositiveInt = Field(90, le=3650)
    """a waiver or an acknowledgement lasts this many days from now at the most; it can be
    renewed"""
    token_days: PositiveInt = Field(90, le=36500)
    """a token ends after this many days unless an admin says otherwise"""
    max_token_days: PositiveInt | None = Field(None, le=36500)
    """the longest life of a token; default: any, also a token that never ends"""
    max_body_bytes: PositiveInt = 2**20
    """largest body of a request, in bytes"""
    max_delivery_bytes: PositiveInt = 5 * 2**20
    """largest incoming delivery of a CI system, in bytes"""
    body_deadline_s: PositiveFloat = 30.0
    """a body must arrive within this time; a delivery within 10 s, an uploaded file within four
    times as long"""
    read_timeout_s: PositiveFloat = 30.0
    """a statement that reads for a page or an answer ends after this time"""
    max_connections: PositiveInt = 500
    """connections, and requests, of each HTTP process at once; further requests get 503. Their
    shares by address are the proxy's"""
    max_import_bytes: PositiveInt = 32 * 2**20
    """largest file of `POST /imports`, in bytes"""
    per_seed_deadline_s: PositiveFloat = 600.0
    """a seed that takes longer is a `hang`; the limit is shorter where 20 times what a seed is
    expected to take, at least 30 s (150 s for a child's first seed), is less"""
    heartbeat_s: PositiveFloat = 5.0
    """a worker says this often that it lives"""
    heartbeat_timeout_s: PositiveFloat = 30.0
    """an attempt without a heartbeat for this long is lost"""
    poll_s: PositiveFloat = 1.0
    """the background looks for work this often, and a fifth as often while nothing happens"""
    chunk_seconds: PositiveFloat = 20.0
    """estimated device time of one chunk of a job"""
    keep_artifacts_days: NonNegativeInt = Field(90, le=36500)
    """artifacts and logs of a job stay this long after its end; 0: for ever"""
    keep_seeds_days: NonNegativeInt = Field(400, le=36500)
    """results per seed of a job stay this long after its end; its counts and statistics stay
    longer; 0: for ever"""
    keep_builds: Names = ()
    """comma-separated builds whose jobs lose nothing, such as releases that others are compared
    with; `*` stands for any text"""
    webhook_private: Annotated[
        Names, _each_name(_is_any_network, "is no network such as 10.1.0.0/16")
    ] = ()
    """comma-separated networks that are not public and that webhooks may be sent to anyway, such as
    `10.1.0.0/16`"""
    github_token: Annotated[SecretStr | None, _IN_A_HEADER] = None
    """token that sets commit statuses and writes comments on GitHub"""
    github_app_id: str | None = None
    """GitHub App in whose name it is done where it is installed, with check runs"""
    github_app_key: SecretStr | None = None
    """the App's private key: PEM text, or the path of a file with it"""
    github_url: Annotated[
        str,
        _must(_is_api, "be an http:// or https:// URL with a host"),
        AfterValidator(lambda url: url.rstrip("/")),
    ] = "https://api.github.com"
    """GitHub's REST API; GitHub Enterprise Server: `https://host/api/v3`"""
    github_webhook_secret: Annotated[
        SecretStr | None,
        _must(_each_part(lambda part: len(part) >= 16), "have at least 16 characters each"),
    ] = None
    """secret of GitHub's webhooks; several, comma-separated, while one replaces the other; without
    one none is taken"""
    ci_webhook_secret: Annotated[
        SecretStr | None,
        _must(_each_part(_is_standard), "be whsec_ and base64 of 24 to 64 bytes each"),
    ] = None
    """`whsec_...` secret of other CI systems' deliveries (Standard Webhooks); several,
    comma-separated"""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """least level that is logged"""

    def __init__(self, **values: Any) -> None:
        """Check the values. Raises SettingsError, which names each wrong setting, not its value."""
        try:
            super().__init__(**values)
        except ValidationError as problem:
            raise SettingsError(_in_words(problem)) from None

    @model_validator(mode="after")
    def _beats(self) -> Settings:
        if self.heartbeat_timeout_s < 2 * self.heartbeat_s:
            raise ValueError(
                "heartbeat_timeout_s must be at least twice heartbeat_s: one late message "
                "would lose an attempt"
            )
        return self


def _in_words(problem: ValidationError) -> str:
    """Return a line for each wrong setting: its variable and the allowed values, not its own."""
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

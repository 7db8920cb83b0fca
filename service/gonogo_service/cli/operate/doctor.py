"""`gonogo doctor`: checks of what stops a new user, each with its remedy."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

import typer

import gonogo.settings
from gonogo.cli.kit import extras, show
from gonogo.cli.kit.body_options import JSON
from gonogo.errors import GonogoError
from gonogo.fields import did_you_mean
from gonogo.spec.executors import EXECUTORS

LEAST_FREE_BYTES = 2**30
LEAST_POSTGRES = 15
SOCKET_BYTES = 108
"""A unix socket's path has less."""
WARN_SKEW_S, MAX_SKEW_S = 10.0, 60.0
"""Leases of the service's processes outlast the former, and no longer the latter."""
HEALTH_S = 5.0
"""The service gets this long to answer."""
VERSION_S = 30.0
LOCAL = ("localhost", "127.0.0.1", "::1")
SQLITE = "gonogo.sqlite"
SECRET_FILES = ("secret_key", "host.json", "up.json", SQLITE)
SETUP_FILES = (".env", "worker.env", "users.acl")
ROOT = Path("/")
"""Where /sys and /dev are."""
TENSTORRENT = "0x1e52"
"""The vendor of the chips on PCI."""


class State(StrEnum):
    """The result of a check; `ok` also where this machine doesn't need the part."""

    ok = "ok"
    warn = "warn"
    fail = "fail"


Result = tuple[State, str]
"""A state and one sentence."""


CHECKS: dict[str, tuple[Callable[[], Result], str]] = {}
"""Each check and how to mend what it finds, by the part that `--part` takes and the output says."""


def check(remedy: str) -> Callable[[Callable[[], Result]], Callable[[], Result]]:
    """Add a function to CHECKS."""

    def add(function: Callable[[], Result]) -> Callable[[], Result]:
        CHECKS[function.__name__.replace("_", "-")] = function, remedy
        return function

    return add


@dataclass(frozen=True)
class Finding:
    """The result of one check as `--json` prints it."""

    part: str
    state: State
    message: str
    remedy: str | None
    """How to mend it; None where nothing is wrong."""


@check("make the environment with Python 3.11, 3.12, 3.13 or 3.14")
def python() -> Result:
    """The interpreter's version."""
    fits = (3, 11) <= sys.version_info[:2] < (3, 15)
    return _state(fits), f"{platform.python_version()} at {sys.executable}"


@check("run `make setup` in a checkout, or install the wheel")
def node_build() -> Result:
    """The pages' scripts, which node builds."""
    from gonogo_dashboards.kit import assets

    assets.entry("main")  # raises where they are missing
    return State.ok, "the pages' scripts are built"


@check(
    "name a Redis with maxmemory-policy noeviction in GONOGO_BROKER_URL, or install redis-server"
)
def redis() -> Result:
    """The configured Redis, or a program for the private one of `gonogo up`."""
    url = gonogo.settings.load().broker_url
    if url is None:
        import redis  # noqa: F401  a bare install has no use for the program either

        from gonogo_service.cli.operate.redis_server import program

        folder = tempfile.gettempdir()
        if len(folder) + len("/gonogo-12345678/redis.sock") >= SOCKET_BYTES:
            return State.fail, f"{folder} is too long a path for a socket: set TMPDIR"
        return State.ok, f"`gonogo up` starts {program()}"
    from redis.exceptions import NoPermissionError

    from gonogo_workers.queue import redis_client

    with redis_client(url) as client:
        try:
            version = client.info("server")["redis_version"]
            policy = client.info("memory").get("maxmemory_policy")
        except NoPermissionError:
            client.ping()
            return State.ok, "it answers; this account may not see more"
    return _state(policy == "noeviction"), f"{version}, maxmemory-policy {policy}"


@check(
    "start it, and name it in GONOGO_DATABASE_URL: SQLite, or PostgreSQL 15 or newer; run "
    "`gonogo db upgrade`"
)
def database() -> Result:
    """The configured database, or the file of `gonogo up`, and its schema."""
    if gonogo.settings.load().database_url is None and not (_var() / SQLITE).exists():
        return State.ok, "none yet: `gonogo up` makes an SQLite file"
    from gonogo_service.cli.operate.database import engine
    from gonogo_service.operate import schema

    with engine() as connected:
        state, dialect = schema.state(connected), connected.dialect
    version = dialect.server_version_info or ()
    is_new = dialect.name != "postgresql" or version >= (LEAST_POSTGRES,)
    message = f"{dialect.name} {'.'.join(map(str, version))}; the schema is {state.value}"
    return _state(is_new and state in schema.READY), message


@check("free some: 1 GiB is the least; `gonogo db prune` removes old results")
def disk() -> Result:
    """Free space where this machine writes."""
    folders = (_var(), _database_file().parent, Path(tempfile.gettempdir()))
    there = [
        next(path for path in (folder, *folder.parents) if path.exists()) for folder in folders
    ]
    free, least = min((shutil.disk_usage(folder).free, folder) for folder in there)
    return _state(free >= LEAST_FREE_BYTES), f"{free / 2**30:.1f} GiB free in {least}"


@check("`chown` the folder to this user; `chmod go= FILE`, then replace the secrets in it")
def permissions() -> Result:
    """Folders that this user can't write, and secrets that other users can read."""
    shut = [
        str(folder)
        for folder in (_var(), _database_file().parent)
        if folder.exists() and not os.access(folder, os.W_OK)
    ]
    if shut:
        return State.fail, f"this user can't write {', '.join(shut)}"
    files = [_var() / name for name in SECRET_FILES] + [Path.cwd() / name for name in SETUP_FILES]
    files += [_database_file()]
    # a file in a folder that others can't enter is safe
    loose = [
        str(file)
        for file in dict.fromkeys(files)
        if file.is_file() and file.stat().st_mode & 0o077 and file.parent.stat().st_mode & 0o077
    ]
    if loose:
        return State.fail, f"other users can read {', '.join(loose)}"
    return State.ok, "this user can write its folders, and nobody else can read its secrets"


@check("run an NTP client here, such as `timedatectl set-ntp true`")
def clock() -> Result:
    """This machine's clock, compared with the broker's."""
    url = gonogo.settings.load().broker_url
    if url is None:
        return State.ok, "no broker is configured: there is no other clock to compare with"
    from redis.exceptions import NoPermissionError

    from gonogo_workers.queue import redis_client

    with redis_client(url) as client:
        before = time.time()
        try:
            seconds, microseconds = client.time()
        except NoPermissionError:
            return State.ok, "a host's clock changes nothing: the service's counts"
        ahead_s = (before + time.time()) / 2 - seconds - microseconds / 1e6
    far = abs(ahead_s)
    state = State.ok if far <= WARN_SKEW_S else State.warn if far <= MAX_SKEW_S else State.fail
    return state, f"this clock is {ahead_s:+.1f} s ahead of the broker's"


@check("install tt-kmd, `modprobe tenstorrent`; add this user to the group of /dev/tenstorrent")
def device_files() -> Result:
    """The driver of Tenstorrent chips and its files."""
    vendors = (ROOT / "sys/bus/pci/devices").glob("*/vendor")
    chips = sum(path.read_text().strip() == TENSTORRENT for path in vendors)
    if not chips:
        return State.ok, "this machine has no chips"
    if not (ROOT / "sys/module/tenstorrent").exists():
        return State.fail, f"{chips} chips, and the driver tenstorrent isn't loaded"
    files = sorted((ROOT / "dev/tenstorrent").glob("*"))
    shut = [str(file) for file in files if not os.access(file, os.R_OK | os.W_OK)]
    if shut:
        return State.fail, f"this user can't open {', '.join(shut)}"
    return State.ok, f"{chips} chips, and this user can open their files"


@check("mend the program of the card's arithmetic (manual: wormhole)")
def cards() -> Result:
    """The programs of the cards here, by which known-right kernels are replayed."""
    from gonogo_workers.devices import health_monitor, locks

    canaries = health_monitor.canaries(locks.folder_of(gonogo.settings.load()))
    if not canaries:
        return State.ok, "no canary has run on this machine"
    sentences = [f"{name}: {unreplayed or replay}" for name, replay, unreplayed in canaries]
    has_unreplayed = any(unreplayed for _, _, unreplayed in canaries)
    return (State.warn if has_unreplayed else State.ok), "; ".join(sentences)


@check("install ttnn there, or name another `python` in the file of GONOGO_BUILDS")
def ttnn() -> Result:
    """The package ttnn in each interpreter of a build that needs it."""
    from gonogo_workers.devices import programs
    from gonogo_workers.executors import builds_file, registry

    settings = gonogo.settings.load()
    file = builds_file.read(settings.builds)
    names = [row.name for row in EXECUTORS.values() if row.package == "ttnn"]
    resolved = [
        builds_file.resolve_build(registry.built_in(name), build, file)
        for name in names
        for build in file.of(name) or (["(any)"] if name in file.executors else [])
    ]
    interpreters = {build.executor.interpreter: build.environment for build in resolved}
    interpreters = {
        name: given for name, given in interpreters.items() if builds_file.MATCH not in name
    }
    if not interpreters:
        return State.ok, "no build of this host needs it"
    program = "import importlib.metadata; print(importlib.metadata.version('ttnn'))"
    sentences, fits = [], True
    for interpreter, environment in interpreters.items():
        done = programs.run([interpreter, "-c", program], VERSION_S, environment=environment)
        last = (done.output.strip().splitlines() or [str(done.trouble)])[-1]
        sentences.append(f"{last} in {interpreter}" if done.ok else f"{interpreter}: {last}")
        fits = fits and done.ok
    return _state(fits), "; ".join(sentences)


@check("correct the build in the file of GONOGO_BUILDS, or install what it lacks")
def kernel_host() -> Result:
    """The processes that run kernels: of each executor, and of each build of the builds file."""
    from gonogo.kernels import registry as kernels
    from gonogo_workers.executors import builds_file, registry
    from gonogo_workers.executors.base import ExecutorFailure
    from gonogo_workers.executors.kernel_host import KernelHost

    settings = gonogo.settings.load()
    kernels.load(settings.kernels)  # raises for one that can't be loaded
    specs, file = registry.known(settings.executors), builds_file.read(settings.builds)
    plug_ins = (name for name in specs if name not in EXECUTORS)
    builds = [(entry["executor"], build) for build, entry in file.builds.items()]
    for executor in dict.fromkeys((registry.EMULATOR, *plug_ins, *file.executors)):
        builds += [] if file.of(executor) else [(executor, "any")]
    problems = []
    for executor, build in builds:
        if executor not in specs:
            reason = f"there is no executor {executor}{did_you_mean(executor, specs)}"
            problems.append(f"build {build}: {reason}")
            continue
        if builds_file.STAR in build:  # what it starts is known when a job names a build
            continue
        resolved = builds_file.resolve_build(specs[executor], build, file)
        row, command = EXECUTORS.get(executor), next(iter(resolved.command), "")
        if row is not None and row.command == "program" and shutil.which(command) is None:
            problems.append(f"build {build}: no program {command!r} that can be run")
            continue
        try:
            with closing(KernelHost(resolved.executor, resolved.environment)) as host:
                host.wait_until_loaded()
        except ExecutorFailure as problem:
            problems.append(f"build {build}: {_first_line(problem)}")
    names = ", ".join(f"{build} of {executor}" for executor, build in builds)
    return _state(not problems), "; ".join(problems) or f"it starts for the builds {names}"


@check("start the server; correct GONOGO_URL, GONOGO_TOKEN, GONOGO_HOSTS or GONOGO_PORT")
def address() -> Result:
    """The address of the server, for this machine's commands and for what it serves itself."""
    from gonogo.cli.kit.client import Client, server_url

    settings = gonogo.settings.load()
    parts = urlsplit(settings.url or "")
    name = parts.hostname
    if settings.database_url and name and name not in (*LOCAL, *settings.hosts):
        return State.fail, f"GONOGO_HOSTS lacks {name}, the host of GONOGO_URL: it answers 421"
    try:
        url = server_url()
    except GonogoError:
        return _own_port(settings.host, settings.port)
    with Client(url) as client:
        client.call("GET", "/jobs", limit=1)
    if parts.scheme == "http" and name not in LOCAL:
        return State.warn, f"{url} answers, without TLS: tokens and logins cross it unencrypted"
    return State.ok, f"{url} answers"


PARTS = ", ".join(CHECKS)


def findings(parts: Sequence[str] = ()) -> Iterator[Finding]:
    """Yield the findings of every check, or of those named; a check that raises has failed."""
    for part, (run, remedy) in CHECKS.items():
        if parts and part not in parts:
            continue
        try:
            state, message = run()
        except Exception as problem:  # a broken part is what the doctor looks for
            # a bare install lacks nothing of what it is for
            without = extras.missing(getattr(problem, "name", None))
            if isinstance(problem, ModuleNotFoundError) and without is not None:
                state, message = State.ok, f"not needed without a server: {without}"
            else:
                state, message = State.fail, _first_line(problem)
        yield Finding(part, state, message, None if state is State.ok else remedy)


def doctor(
    part: list[str] = typer.Option(
        [], "--part", help=f"Look at this part only; repeatable: {PARTS}."
    ),
    as_json: bool = JSON,
) -> None:
    """Check this machine and its settings; exit with code 3 if something fails."""
    if unknown := sorted(set(part) - set(CHECKS)):
        raise typer.BadParameter(
            f"no such part: {', '.join(unknown)}{did_you_mean(unknown[0], CHECKS)}; there are "
            + PARTS
        )
    results = list(findings(part))
    failed = any(finding.state is State.fail for finding in results)
    if as_json:
        show.print_json({"ok": not failed, "findings": [vars(finding) for finding in results]})
    else:
        out, styles = show.console(), {"ok": "green", "warn": "yellow", "fail": "bold red"}
        for row in results:
            out.print(f"[{styles[row.state]}]{row.state:<4}[/] [bold]{row.part:<13}[/] ", end="")
            out.print(row.message, markup=False, highlight=False, soft_wrap=True)
            if row.remedy is not None:
                remedy = f"{'':<18} remedy: {row.remedy}"
                out.print(remedy, markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(3 if failed else 0)


def _own_port(host: str, port: int) -> Result:
    """Look at the port that `gonogo serve` binds: free, or that of a server which runs."""
    import httpx

    from gonogo_service.cli.operate.up import listener

    try:
        with listener(host, port):
            return State.ok, f"no server runs here; {host}:{port} is free"
    except OSError as problem:
        why = str(problem)
    place = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)
    try:
        status = httpx.get(f"http://{place}:{port}/healthz", timeout=HEALTH_S).status_code
    except httpx.HTTPError:
        status = None
    if status in (200, 421):  # 421: it lives, and its GONOGO_HOSTS lacks this name
        return State.ok, f"a server answers at {host}:{port}"
    return State.fail, f"{host}:{port} can't be bound: {why}"


def _state(fits: bool) -> State:
    return State.ok if fits else State.fail


def _var() -> Path:
    return Path(gonogo.settings.load().var_dir).absolute()


def _database_file() -> Path:
    """Return the file of the configured SQLite, else that of `gonogo up`."""
    url = gonogo.settings.load().database_url or ""
    is_sqlite = url.startswith("sqlite:///")
    return Path(url.removeprefix("sqlite:///")).absolute() if is_sqlite else _var() / SQLITE


def _first_line(problem: Exception) -> str:
    return str(problem).strip().partition("\n")[0] or repr(problem)

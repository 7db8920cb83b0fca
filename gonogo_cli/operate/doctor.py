"""`gonogo doctor`: check this machine and its settings, and say how to mend what is wrong."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import typer

import gonogo_settings
from gonogo.errors import GonogoError
from gonogo.spec.fields import did_you_mean
from gonogo_cli.kit import extras, show

LEAST_FREE_BYTES = 2**30
HELLO_S = 5.0
"""The service gets this long to tell the time."""


@dataclass(frozen=True)
class Finding:
    """One part: ok True, False, or None for "not needed here"."""

    part: str
    ok: bool | None
    words: str
    remedy: str | None = None
    """How to mend what is wrong, where one line says it."""


def python() -> Finding:
    """The interpreter."""
    return Finding(
        "python",
        (3, 11) <= sys.version_info[:2] < (3, 15),
        f"{platform.python_version()} at {sys.executable}",
    )


def unknown_variables() -> Finding:
    """GONOGO_ variables that nobody reads: mostly typing mistakes."""
    unread = ", ".join(
        name + "".join(f" (did you mean {meant}?)" for meant in names)
        for name, names in gonogo_settings.unread(os.environ).items()
    )
    words = f"nobody reads {unread}" if unread else "every GONOGO_ variable is known"
    return Finding("settings", not unread, words)


def compiled_code() -> Finding:
    """Whether numba can keep its compiled code."""
    if importlib.util.find_spec("numba") is None:
        return Finding("numba", None, "not installed: NumPy does the work, more slowly")
    folder = os.environ.get("NUMBA_CACHE_DIR")
    import gonogo

    places = [Path(folder)] if folder else [Path(gonogo.__file__).parent, Path.home()]
    fits = any(os.access(place, os.W_OK) for place in places)
    return Finding(
        "numba",
        fits,
        "compiled code is kept on disk"
        if fits
        else "no folder is writable: set GONOGO_NUMBA_CACHE_DIR",
    )


def broker() -> Finding:
    """The configured Redis, or a program for the embedded one."""
    url = gonogo_settings.load().broker_url
    if url is None:
        import redis  # noqa: F401  a bare install has no use for the program either

        from gonogo_cli.operate.redis_server import program

        return Finding("redis", True, f"embedded: {program()}")
    from redis.exceptions import NoPermissionError

    from gonogo_workers.queue import redis_client

    with redis_client(url) as client:
        try:
            version = client.info("server")["redis_version"]
            policy = client.info("memory").get("maxmemory_policy")
        except NoPermissionError:
            client.ping()
            return Finding("redis", True, "answers; this account may not see more")
    fits = policy == "noeviction"
    return Finding(
        "redis",
        fits,
        f"{version}, {policy}"
        + ("" if fits else ": set maxmemory-policy noeviction, or messages are dropped"),
    )


def host() -> Finding:
    """Whether this machine is enrolled as a host, and its clock."""
    from gonogo_workers.messages import exchange, identity

    config = gonogo_settings.load()
    folder = Path(config.var_dir).absolute()
    if not (folder / identity.FILE).exists():
        return Finding("host", None, "not enrolled: only a machine with a worker needs it")
    me = identity.load(folder)
    if config.broker_url is None:
        return Finding("host", None, f"enrolled as {me.name}; GONOGO_BROKER_URL is not set")
    from gonogo_workers.queue import redis_client

    with redis_client(config.broker_url) as client:
        answer = exchange.hello(client, me, wait_s=HELLO_S)
    exchange.check_clock(answer)
    return Finding(
        "host", True, f"enrolled as {me.name}; its clock is {answer.skew_s:+.1f} s ahead"
    )


def database() -> Finding:
    """The configured database, or the embedded one's."""
    if (
        gonogo_settings.load().database_url is None
        and not (Path(gonogo_settings.load().var_dir) / "gonogo.sqlite").exists()
    ):
        return Finding("database", None, "none yet: `gonogo up` makes an SQLite file")
    from gonogo_cli.operate.database import engine
    from gonogo_storage.ops import schema

    with engine() as database:
        state = schema.state(database)
        words = f"{database.dialect.name}, schema: {state.value}"
    fits = state in schema.READY
    return Finding("database", fits, words if fits else f"{words}; run `gonogo db upgrade`")


def disk() -> Finding:
    """Free space where the embedded service writes."""
    folder = Path(gonogo_settings.load().var_dir).absolute()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    return Finding(
        "disk",
        free >= LEAST_FREE_BYTES and os.access(folder, os.W_OK),
        f"{free / 2**30:.1f} GiB free in {folder}",
    )


def temporary() -> Finding:
    """A unix socket's path may have 108 bytes at most."""
    length = len(tempfile.gettempdir()) + len("/gonogo-12345678/redis.sock")
    return Finding(
        "temporary",
        length < 108,
        tempfile.gettempdir() + ("" if length < 108 else ": too long for a socket; set TMPDIR"),
    )


def server() -> Finding:
    """The server that the other commands would talk to."""
    from gonogo_cli.kit.client import Client, server_url

    try:
        url = server_url()
    except GonogoError:
        return Finding("server", None, "none configured, none running here")
    with Client(url) as client:
        client.call("GET", "/jobs", limit=1)
    return Finding("server", True, url)


def kernels() -> Finding:
    """The kernels of other packages: those that a service here would know, and the others."""
    from gonogo.spec.kernels import installed, registry

    registry.load(gonogo_settings.load().kernels)  # raises for one that can't be loaded
    known, others = registry.loaded(), set(installed.names()) - set(registry.loaded())
    if not known and not others:
        return Finding("kernels", None, "no installed package offers one")
    allowed = f"{registry.SETTING} allows {', '.join(known) or 'none'}"
    words = f"; installed, for local commands and pytest only: {', '.join(sorted(others))}"
    return Finding("kernels", True, allowed + (words if others else ""))


def builds(canary: bool = False) -> Iterator[Finding]:
    """Each build of this host's builds file."""
    if gonogo_settings.load().builds is None and not gonogo_settings.load().executors:
        yield Finding("builds", None, "no builds file (GONOGO_BUILDS): the emulator needs none")
        return
    from gonogo_cli.operate.builds import trials

    for trial in trials(canary):
        yield Finding(f"build {trial.build}", trial.ok, f"{trial.executor}: {trial.words}")


def isolation() -> Finding:
    """The user that kernels run as, and whether this process may start programs as that user."""
    if importlib.util.find_spec("gonogo_workers") is None:
        return Finding("isolation", None, "no worker here")
    from gonogo_workers.executors.child_user import child_user

    user = child_user()
    if user is None:
        words = "kernels run as the worker's user; GONOGO_CHILD_USER names another"
        return Finding("isolation", None, f"{words} (manual: devices)")
    return Finding("isolation", True, f"kernels run as {user.name}")


def chips() -> Finding:
    """The chips of this host, as the kernel driver lists them, else tt-umd and tt-smi."""
    from gonogo_workers.devices.chips import look
    from gonogo_workers.executors import builds_file, registry

    settings = gonogo_settings.load()
    seen = look(
        settings.tt_smi,
        builds_file.interpreters(
            registry.known(settings.executors), builds_file.read(settings.builds)
        ),
    )
    summary = ", ".join(
        f"{chip.index} ({' '.join(filter(None, (chip.arch, chip.board, chip.serial, chip.pci)))})"
        for chip in seen
    )
    ok = True if seen else None
    return Finding(
        "chips", ok, summary or "none: neither the driver nor tt-smi nor tt-umd lists one"
    )


CHECKS: Mapping[str, Callable[[], Finding | Iterator[Finding]]] = {
    "python": python,
    "settings": unknown_variables,
    "numba": compiled_code,
    "redis": broker,
    "host": host,
    "database": database,
    "disk": disk,
    "temporary": temporary,
    "server": server,
    "chips": chips,
    "isolation": isolation,
    "kernels": kernels,
    "builds": builds,
}
"""By the name of the part: what `--part` takes and the output says."""
PARTS = ", ".join(CHECKS)


def findings(parts: Sequence[str] = (), canary: bool = False) -> Iterator[Finding]:
    """Yield the findings of every check, or of those named; a check that raises is a finding too.

    `canary` has each build run its canary.
    """
    for part, check in CHECKS.items():
        if parts and part not in parts:
            continue
        try:
            result = builds(canary) if check is builds else check()
            yield from (result,) if isinstance(result, Finding) else result
        except Exception as problem:  # a broken part is what the doctor looks for
            # a bare install lacks nothing of what it is for
            without = extras.missing(getattr(problem, "name", None))
            if isinstance(problem, ModuleNotFoundError) and without is not None:
                yield Finding(part, None, f"not needed without a server: {without}")
            else:
                yield Finding(part, False, _first_line(problem))


def deep_findings(parts: Sequence[str]) -> Iterator[Finding]:
    """Yield the usual mistakes that `--deep` finds."""
    from gonogo_cli.operate.mistakes.machine import Machine, NotHere
    from gonogo_cli.operate.mistakes.table import MISTAKES

    machine = Machine(gonogo_settings.load())
    for mistake in MISTAKES:
        if parts and mistake.name not in parts:
            continue
        try:
            words = mistake.find(machine)
        except NotHere as reason:
            yield Finding(mistake.name, None, str(reason))
        except Exception as problem:  # what can't be looked at is what the doctor looks for, too
            yield Finding(mistake.name, False, f"can't be checked: {_first_line(problem)}")
        else:
            wrong = None if mistake.is_advice else False
            yield (
                Finding(mistake.name, True, "nothing found")
                if words is None
                else Finding(mistake.name, wrong, words, mistake.remedy)
            )


def deep_parts() -> list[str]:
    """Return the parts that only `--deep` looks at."""
    from gonogo_cli.operate.mistakes.table import MISTAKES

    return [mistake.name for mistake in MISTAKES]


def _first_line(problem: Exception) -> str:
    return str(problem).strip().splitlines()[0] if str(problem).strip() else repr(problem)


def doctor(
    part: list[str] = typer.Option(
        [], "--part", help=f"Look at this part only; repeatable: {PARTS}; with --deep its own, too."
    ),
    deep: bool = typer.Option(
        False,
        "--deep",
        help="Look for the usual mistakes of an installation.",
    ),
    canary: bool = typer.Option(
        False,
        "--canary",
        help="Run a small known LayerNorm with each build as well (needs its device).",
    ),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Check this machine and its settings; exit with code 3 if something is missing or wrong."""
    names = [*CHECKS, *(deep_parts() if deep else ())]
    unknown = sorted(set(part) - set(names))
    if unknown:
        raise typer.BadParameter(
            f"no such part: {', '.join(unknown)}{did_you_mean(unknown[0], names)}; there are "
            + ", ".join(names)
            + ("" if deep else ", and more with --deep")
        )
    results = [] if part and not set(part) & set(CHECKS) else list(findings(part, canary))
    if deep:
        results += deep_findings(part)
    if as_json:
        show.print_json(
            {
                "ok": all(finding.ok is not False for finding in results),
                "findings": [asdict(finding) for finding in results],
            }
        )
    else:
        out = show.console()
        width = 20 if deep else 17
        for finding in results:
            mark = {True: "[green]ok  [/]", False: "[bold red]BAD [/]", None: "[dim]-   [/]"}[
                finding.ok
            ]
            out.print(f"{mark} [bold]{finding.part:<{width}}[/] ", end="")
            out.print(finding.words, markup=False, highlight=False, soft_wrap=True)
            if finding.remedy is not None:
                remedy = f"     {'':<{width}} remedy: {finding.remedy}"
                out.print(remedy, markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(0 if all(finding.ok is not False for finding in results) else 3)

"""`gonogo up`: the whole service on this machine without any configuration.

SQLite (WAL) and keys in `var/`, a private Redis on a unix socket in a 0700 folder (a socket's path
may have 108 bytes at most, so it isn't in `var/`), the API, background and one emulator worker,
each a child process that is started again when it dies. The supervisor itself opens the API's
listening socket and hands it down: while the API restarts, requests wait instead of being refused.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NoReturn

import typer
from pydantic import SecretStr

import gonogo.settings
from gonogo.cli.kit.extras import require_service
from gonogo.cli.kit.private_process import without
from gonogo.errors import InfrastructureError
from gonogo_service.cli.operate import redis_server, token_file
from gonogo_service.cli.operate.supervisor import Child, GaveUp, Supervisor

READY_S = 60.0
"""The API must answer within this; the first start of a fresh installation compiles its byte
code."""
STOP_S = {"api": 4.0, "worker": 3.0, "background": 3.0, "redis": 1.0}
"""The seconds that each child has to stop, in the order in which they stop."""


class InUse(Exception):
    """Another `gonogo up` holds this folder; `record` is its up.json (empty while it starts)."""

    def __init__(self, record: dict[str, Any]) -> None:
        self.record = record
        where = f"at {record['url']} (pid {record['pid']})" if record else "and is still starting"
        super().__init__(f"already running {where}")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold `folder` for this process. Raises InUse.

    The kernel frees the lock however the process ends.
    """
    _make_private(folder)
    handle = os.open(folder / "up.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InUse(read_record(folder) or {}) from None
        (folder / "up.json").unlink(missing_ok=True)
        try:
            yield
        finally:  # a service that gave up is no longer at that address
            (folder / "up.json").unlink(missing_ok=True)
    finally:
        os.close(handle)


def _make_private(folder: Path) -> None:
    """Make the folder, and close it to other users if it is a folder of `gonogo up`.

    Another folder that was there before keeps its mode: it may have other uses.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    is_ours = (folder / "up.lock").exists() or not any(folder.iterdir())
    if is_ours and folder.stat().st_uid == os.geteuid():
        folder.chmod(0o700)


def read_record(folder: Path) -> dict[str, Any] | None:
    """Return up.json of a running `gonogo up`; None without one."""
    try:
        record: dict[str, Any] = json.loads((folder / "up.json").read_text())
    except (FileNotFoundError, ValueError):
        return None
    return record


def _key(path: Path) -> str:
    """Return a secret that is made once and kept readable by its owner only."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_text().strip()
    with os.fdopen(handle, "w") as file:
        file.write(secrets.token_urlsafe(48))
    return path.read_text().strip()


def listener(host: str, port: int) -> socket.socket:
    """Return a listening socket; `::` takes IPv4, too. Raises OSError."""
    is_ipv6 = ":" in host
    return socket.create_server(
        (host, port),
        family=socket.AF_INET6 if is_ipv6 else socket.AF_INET,
        backlog=256,
        dualstack_ipv6=is_ipv6 and socket.has_dualstack_ipv6(),
    )


def _listen(host: str, port: int, any_port: bool) -> socket.socket:
    """Return the API's listening socket; with `any_port`, on another port where `port` is taken.

    Raises InfrastructureError.
    """
    try:
        listening = listener(host, port)
    except OSError as problem:
        if not any_port:
            reason = str(problem.strerror).partition(" (")[0].lower()
            raise InfrastructureError(
                f"can't listen on {host}:{port}: {reason}; end what uses it, such as a demo, or "
                "choose another with --port or --any-port"
            ) from problem
        listening = listener(host, 0)
    listening.set_inheritable(True)
    return listening


def own_command(*words: str) -> list[str]:
    """Return the command line of a gonogo subcommand in this interpreter.

    -P keeps the current folder's modules from shadowing ours.
    """
    return [sys.executable, "-P", "-m", "gonogo.cli", *words]


def _migrate(folder: Path, environment: dict[str, str], database_url: str, url: str) -> None:
    """Bring the SQLite file to the newest schema (`db upgrade` copies it first); add this host.

    Raises InfrastructureError.
    """
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname()).strip(".-_") or "localhost"
    keys = {
        "GONOGO_DATABASE_URL": database_url,
        "GONOGO_SECRET_KEY_FILE": str(folder / "secret_key"),
    }
    done = subprocess.run(
        own_command("db", "upgrade", "--host", host, "--host-url", url),
        env=environment | keys,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        raise InfrastructureError(
            f"the database {folder / 'gonogo.sqlite'} can't be migrated:\n"
            f"{done.stderr.strip()[-2000:]}"
        )


def _configured_secrets() -> dict[str, str]:
    """Return this process's secret settings by variable, from wherever they came.

    A command's own (its token, and the secret of `webhooks verify`) is not for the service.
    """
    config = gonogo.settings.load()
    values = {name: getattr(config, name) for name in gonogo.settings.secret_names()}
    return {
        gonogo.settings.secrets.variable(name): (
            value.get_secret_value() if isinstance(value, SecretStr) else value
        )
        for name, value in values.items()
        if value is not None and name not in {"token", "webhook_secret"}
    }


def _require_executors(text: str, config: gonogo.settings.Settings) -> None:
    """Raise FieldError for a wrong builds file or GONOGO_EXECUTORS, and for an unknown executor.

    The worker would end with it at each of its starts.
    """
    from gonogo_workers.executors import builds_file, registry

    builds_file.read(config.builds)
    registry.parse(config.executors or "")
    for name in text.split(","):
        if name.strip() != "all":
            registry.find(name.strip(), config.executors)


def _children(
    folder: Path,
    listener: socket.socket,
    redis_folder: Path,
    executor: str,
    environment: Mapping[str, str],
    keys: Mapping[str, str],
) -> list[Child]:
    """Return the processes to start, in their order.

    The worker gets neither the database nor the sessions' key, as on a device host.
    """
    logs, descriptor = folder / "logs", listener.fileno()
    logs.mkdir(exist_ok=True)
    broker = {"GONOGO_BROKER_URL": keys["GONOGO_BROKER_URL"]}
    commands: dict[str, tuple[list[str], Mapping[str, str]]] = {
        "redis": (redis_server.command(redis_folder), {}),
        "background": (own_command("background"), keys),
        "api": (own_command("serve", "--fd", str(descriptor)), keys),
        "worker": (own_command("worker", "--executor", executor), broker),
    }
    return [
        Child(
            name,
            command,
            environment,
            logs / f"{name}.log",
            STOP_S[name],
            (descriptor,) if name == "api" else (),
            secrets,
        )
        for name, (command, secrets) in commands.items()
    ]


def _answers(url: str) -> bool:
    """Return whether the API is ready for work."""
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:  # an HTTPError, too
        return False


def run(
    folder: Path,
    host: str,
    port: int,
    *,
    any_port: bool,
    executor: str,
    say: Callable[[str], object],
    ready: Callable[[dict[str, Any]], object],
    token: Path | None = None,
) -> None:
    """Run the service until SIGINT or SIGTERM; call `ready(record)` once it answers.

    Raises InUse, InfrastructureError, GaveUp.
    """
    with (
        locked(folder),
        closing(_listen(host, port, any_port)) as listener,
        tempfile.TemporaryDirectory(prefix="gonogo-", ignore_cleanup_errors=True) as scratch,
    ):
        bound = listener.getsockname()[1]
        every = host in {"", "0.0.0.0", "::"}
        url = f"http://{'localhost' if every else f'[{host}]' if ':' in host else host}:{bound}"
        own_url = f"http://127.0.0.1:{bound}" if every else url
        database_url = f"sqlite:///{folder / 'gonogo.sqlite'}"
        secret_key = _key(folder / "secret_key")
        environment = without(os.environ) | {
            "GONOGO_EMBEDDED": "true",
            "GONOGO_VAR_DIR": str(folder),
            "GONOGO_HOST": host,
            "GONOGO_PORT": str(bound),
            "GONOGO_URL": os.environ.get("GONOGO_URL") or url,
        }
        if token is not None:
            environment["GONOGO_LOOPBACK_LOGIN"] = "true"
        keys = _configured_secrets() | {
            "GONOGO_DATABASE_URL": database_url,
            "GONOGO_BROKER_URL": redis_server.url(Path(scratch)),
            "GONOGO_SECRET_KEY": secret_key,
        }
        children = _children(folder, listener, Path(scratch), executor, environment, keys)
        supervisor = Supervisor(children, list(STOP_S))
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, supervisor.request_stop)
        record = {
            "url": url,
            "pid": os.getpid(),
            "broker_url": keys["GONOGO_BROKER_URL"],
            "database_url": database_url,
            "started_at": time.time(),
            "token_file": None if token is None else str(token),
        }
        try:
            supervisor.start("redis")
            _migrate(folder, environment, database_url, own_url)
            if token is not None:
                token_file.ensure(token, database_url, secret_key)
            for child in children[1:]:
                supervisor.start(child.name)
            deadline = time.monotonic() + READY_S

            def is_ready() -> bool:
                if time.monotonic() > deadline:
                    raise InfrastructureError(
                        f"the API did not get ready within {READY_S:.0f} s; see {folder / 'logs'}"
                    )
                return _answers(url)

            supervisor.run(say, is_ready)
            if not supervisor.stopping:
                temporary = folder / "up.json.new"
                temporary.write_text(json.dumps(record))
                temporary.replace(folder / "up.json")
                ready(record)
                supervisor.run(say)
        finally:
            supervisor.stop()


def up(
    host: str | None = typer.Option(
        None, help="Address to bind (default: GONOGO_HOST, 127.0.0.1)."
    ),
    port: int | None = typer.Option(
        None, help="Port to bind, 0 for any (default: GONOGO_PORT, 8717)."
    ),
    any_port: bool = typer.Option(
        False, "--any-port", help="Take another free port where the wanted one is taken."
    ),
    var: Path | None = typer.Option(
        None, help="Folder of the database, keys and logs (default: GONOGO_VAR_DIR, ./var)."
    ),
    executor: str = typer.Option(
        "all",
        help="Executors of the one worker, comma-separated; all: the emulator, and those of "
        "GONOGO_EXECUTORS and GONOGO_BUILDS.",
    ),
    token: Path | None = typer.Option(
        None,
        token_file.OPTION,
        help="Ask for a token on this machine, too, and keep one in this file, which only you can "
        "read. Without it every user and program of this machine may do everything.",
    ),
    as_json: bool = typer.Option(
        False, "--json", help="Print one JSON line when ready, and problems as JSON."
    ),
) -> None:
    """Run the whole service here, without configuration.

    That is SQLite, a private Redis, the API, background and one emulator worker.
    """
    require_service()
    from gonogo.kernels import registry

    config = gonogo.settings.load()
    registry.load(config.kernels)  # a wrong setting is said here, not in three logs
    _require_executors(executor, config)
    if (config.database_url or config.broker_url) and not config.embedded:
        raise typer.BadParameter(
            "GONOGO_DATABASE_URL or GONOGO_BROKER_URL is set, but `up` brings its own: "
            "unset it, or run `serve`, `background` and `worker`"
        )
    folder = (var or Path(config.var_dir)).absolute()
    os.umask(0o077)  # what the service writes is its owner's alone

    def say(message: str) -> None:
        text = json.dumps({"event": message}) if as_json else f"gonogo up: {message}"
        print(text, file=sys.stderr, flush=True)

    def ready(record: dict[str, Any]) -> None:
        if as_json:
            print(json.dumps(record), flush=True)
        else:
            _show(record, folder)

    try:
        run(
            folder,
            host or config.host,
            config.port if port is None else port,
            any_port=any_port,
            executor=executor,
            say=say,
            ready=ready,
            token=None if token is None else token.absolute(),
        )
    except InUse as problem:
        _give_up(problem, problem.record, as_json)
    except (InfrastructureError, GaveUp) as problem:
        _give_up(problem, {}, as_json)


def _show(record: dict[str, Any], folder: Path) -> None:
    """Tell a person where to look."""
    from rich.console import Console

    console = Console()
    console.print(
        f"[bold green]GoNoGo[/] is up at [bold link={record['url']}]{record['url']}[/]"
        f"  (pid {record['pid']}; Ctrl-C stops it)"
    )
    if record["token_file"] is None:
        text = "open to every user and program of this machine, without a login; --token-file FILE"
        text += " asks for a token"
    else:
        text = f"the token to log in is in {record['token_file']}"
    for line in (text, f"database, keys and logs in {folder}"):
        console.print(f"[dim]{line}[/]", soft_wrap=True)


def _give_up(problem: Exception, record: dict[str, Any], as_json: bool) -> NoReturn:
    """Print one line on stderr (stdout as JSON) and exit with 3."""
    if as_json:
        print(json.dumps({"error": str(problem), **record}), flush=True)
    else:
        print(f"gonogo up: {problem}", file=sys.stderr)
    raise typer.Exit(3)

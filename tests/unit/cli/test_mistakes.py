"""`gonogo doctor --deep`: each usual mistake is found on a machine that has it, and on no other."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from gonogo_cli.operate.mistakes import machine as machines
from gonogo_cli.operate.mistakes import of_machine
from gonogo_cli.operate.mistakes.machine import Broker, Machine, NotHere, Space
from gonogo_cli.operate.mistakes.of_service import DUTIES
from gonogo_cli.operate.mistakes.table import MISTAKES
from gonogo_settings import Settings
from gonogo_settings.release import release
from gonogo_storage.ops.installation import Facts, SilentHost
from gonogo_storage.ops.schema import SchemaState

MINUTES = "10min"
WELL = Broker(
    info={
        "maxmemory_policy": "noeviction",
        "used_memory": 1,
        "maxmemory": 100,
        "redis_version": "7.2.4",
        "connected_clients": 3,
        "aof_enabled": 1,
    },
    config={"maxclients": "10000", "save": ""},
    ahead_s=0.2,
)
FINE = Facts(
    clock_s=time.time(),
    limits={"statement_timeout": MINUTES, "idle_in_transaction_session_timeout": MINUTES},
    version=16,
    connections=(10, 100),
    background=1,
    duties=DUTIES,
    waiting={},
    unserved=(),
    outbox_s=1.0,
    webhook_lag_s=0.0,
    deliveries=0,
    ingest_lag_s=0.0,
    rules=0,
    versions={release(): 2},
    silent=(),
    skewed={},
    refused={},
)
PRODUCTION: dict[str, Any] = {
    "database_url": "postgresql+psycopg://gonogo@db/gonogo",
    "broker_url": "redis://service:word@broker:6379/0",
    "secret_key": SecretStr("4f1c2d9e8b7a6053f1e2d3c4b5a69788"),
    "url": "https://gonogo.example.org",
    "hosts": "gonogo.example.org",
    "host": "0.0.0.0",
    "proxies": "10.0.0.1",
    "max_connections": 20,
}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Machine]:
    """Make a machine in production on which all is well, but for the given changes."""
    chip = tmp_path / "sys/bus/pci/devices/0000:01:00.0"
    for folder in (chip, tmp_path / "sys/module/tenstorrent", tmp_path / "dev/tenstorrent"):
        folder.mkdir(parents=True)
    (chip / "vendor").write_text("0x1e52\n")
    (tmp_path / "dev/tenstorrent/0").write_text("")
    pages = tmp_path / of_machine._GIGANTIC
    pages.parent.mkdir(parents=True)
    pages.write_text("1\n")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/mounts").write_text("/dev/sda1 / ext4 rw 0 0\n")
    var = tmp_path / "var"
    var.mkdir(mode=0o700)
    (var / "secret_key").write_text("key")
    monkeypatch.setattr(machines, "read_schema", lambda: SchemaState.head)

    def make(
        settings: dict[str, Any] | None = None,
        broker: dict[str, Any] | None = None,
        **facts: Any,
    ) -> Machine:
        given = {**PRODUCTION, "var_dir": str(var), **(settings or {})}
        known = replace(FINE, **{"clock_s": time.time(), **facts})
        return Machine(
            Settings(**given),
            environ={},
            root=tmp_path,
            folder=tmp_path,
            read_broker=lambda _: replace(WELL, **(broker or {})),
            read_facts=lambda _: known,
        )

    return make


def info(**changes: Any) -> dict[str, Any]:
    return {"broker": {"info": {**WELL.info, **changes}}}


def findings_of(machine: Machine) -> dict[str, str]:
    """The findings of each check."""
    words = {}
    for mistake in MISTAKES:
        try:
            text = mistake.find(machine)
        except NotHere:
            continue
        if text is not None:
            words[mistake.name] = text
    return words


def test_nothing_is_found_where_all_is_well(machine: Callable[..., Machine]) -> None:
    assert findings_of(machine()) == {}


NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "broker-eviction": (info(maxmemory_policy="allkeys-lru"), "maxmemory-policy allkeys-lru"),
    "broker-memory": (info(used_memory=90), "uses 0 of 0 MiB"),
    "broker-version": (info(redis_version="6.0.16"), "Redis is 6.0.16"),
    "broker-clock": ({"broker": {"ahead_s": -30.0}}, "-30 s ahead"),
    "broker-clients": (info(connected_clients=9000), "9000 of at most 10000"),
    "broker-persistence": (info(aof_enabled=0), "keeps nothing on disk"),
    "broker-password": ({"settings": {"broker_url": "redis://broker:6379/0"}}, "names broker"),
    "database-clock": ({"clock_s": time.time() + 3600}, "s ahead of this machine's"),
    "database-version": ({"version": 13}, "PostgreSQL is 13"),
    "database-timeouts": ({"limits": {"statement_timeout": "0"}}, "no statement_timeout"),
    "database-connections": ({"connections": (95, 100)}, "95 of at most 100"),
    "open-files": ({"settings": {"max_connections": 10**9}}, "GONOGO_MAX_CONNECTIONS needs"),
    "secret-key": ({"settings": {"secret_key": SecretStr("a" * 32)}}, "looks like an example"),
    "public-address": ({"settings": {"url": "http://gonogo.example.org"}}, "without TLS"),
    "host-names": ({"settings": {"hosts": "localhost"}}, "lacks gonogo.example.org"),
    "background": ({"background": 0}, "no background process"),
    "duties": ({"duties": DUTIES[1:]}, "no process holds dispatcher"),
    "queues": ({"unserved": ("ttnn.wormhole.n150",)}, "no worker serves ttnn.wormhole.n150"),
    "worker-version": ({"versions": {"0.0.1": 2}}, "2 of 0.0.1"),
    "silent-hosts": ({"silent": (SilentHost("lab-1", NOON),)}, "lab-1 since 2026-01-31 12:00"),
    "host-clocks": ({"skewed": {"lab-1": 40.0}}, "lab-1 by +40 s"),
    "refused-messages": ({"refused": {"lab-1": 3}}, "3 of lab-1"),
    "outbox": ({"outbox_s": 3600.0}, "waits for 3600 s"),
    "webhooks": ({"webhook_lag_s": 7200.0, "deliveries": 9}, "9 messages wait"),
    "ingest": ({"ingest_lag_s": 900.0}, "on the way for 900 s"),
    "hook-secrets": ({"rules": 1}, "1 rules, and no secret"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_mistake_is_found_and_no_other(machine: Callable[..., Machine], name: str) -> None:
    changes, words = CASES[name]
    findings = findings_of(machine(**changes))
    assert list(findings) == [name]
    assert words in findings[name]


def _unset(machine: Machine, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machines, "read_schema", lambda: SchemaState.behind)


def _loose(machine: Machine, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path / "worker.env").write_text("GONOGO_BROKER_URL=...")
    (path / "worker.env").chmod(0o644)


def _full(machine: Machine, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Machine, "space", lambda _self, _folder: Space(2**20, 0.5))


def _no_inodes(machine: Machine, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Machine, "space", lambda _self, _folder: Space(2**40, 0.01))


def _locked(machine: Machine, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # root may write everything, so the answer of the kernel is replaced
    monkeypatch.setattr(of_machine.os, "access", lambda place, _how: path / "var" != Path(place))


def _shut(machine: Machine, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chip = path / "dev/tenstorrent/0"
    monkeypatch.setattr(of_machine.os, "access", lambda place, _how: chip != Path(place))


def _no_driver(machine: Machine, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path / "sys/module/tenstorrent").rmdir()


def _no_pages(machine: Machine, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path / of_machine._GIGANTIC).write_text("0\n")


@pytest.mark.parametrize(
    ("name", "break_it", "words"),
    [
        ("database-schema", _unset, "the schema is behind"),
        ("permissions", _loose, "worker.env"),
        ("disks", _full, "0.0 GiB left"),
        ("disks", _no_inodes, "1 % of its inodes left"),
        ("folders", _locked, "can't write"),
        ("device-files", _shut, "can't open"),
        ("driver", _no_driver, "tenstorrent isn't loaded"),
        ("hugepages", _no_pages, "0 pages of 1 GiB for 1 chips"),
    ],
)
def test_a_mistake_of_a_machine_is_findings_of(
    machine: Callable[..., Machine],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    break_it: Callable[..., None],
    words: str,
) -> None:
    here = machine()
    break_it(here, tmp_path, monkeypatch)
    findings = findings_of(here)
    assert list(findings) == [name]
    assert words in findings[name]


def test_a_file_in_a_folder_that_others_enter_is_findings_of(
    machine: Callable[..., Machine], tmp_path: Path
) -> None:
    (tmp_path / "var").chmod(0o755)
    (tmp_path / "var/secret_key").chmod(0o644)
    assert "var/secret_key" in findings_of(machine())["permissions"]


def test_a_database_that_others_can_read_is_found_wherever_it_is(
    machine: Callable[..., Machine], tmp_path: Path
) -> None:
    file = tmp_path / "elsewhere" / "jobs.sqlite"
    file.parent.mkdir(mode=0o755)
    file.touch(mode=0o644)
    here = machine(settings={"database_url": f"sqlite:///{file}"})
    assert str(file) in findings_of(here)["permissions"]
    file.parent.chmod(0o700)
    assert "permissions" not in findings_of(here)


def test_an_sqlite_file_on_the_network_is_findings_of(
    machine: Callable[..., Machine], tmp_path: Path
) -> None:
    (tmp_path / "proc/mounts").write_text(
        f"/dev/sda1 / ext4 rw 0 0\nserver:/export {tmp_path} nfs4 rw 0 0\n"
    )
    here = machine(settings={"database_url": f"sqlite:///{tmp_path}/gonogo.sqlite"})
    assert "network file system (nfs4)" in findings_of(here)["database-file"]


def test_every_mistake_has_a_case_a_consequence_and_a_remedy_in_one_line() -> None:
    elsewhere = {"database-schema", "permissions", "disks", "folders", "driver", "database-file"}
    elsewhere |= {"device-files", "hugepages"}
    assert {mistake.name for mistake in MISTAKES} == CASES.keys() | elsewhere
    for mistake in MISTAKES:
        assert mistake.consequence.endswith(".")
        assert mistake.remedy
        assert "\n" not in mistake.remedy


def test_a_server_that_is_away_is_asked_once(machine: Callable[..., Machine]) -> None:
    tries = []

    def away(_: Settings) -> Broker:
        tries.append(1)
        raise ConnectionError("refused")

    here = replace(machine(), read_broker=away)
    for _ in range(3):
        with pytest.raises(ConnectionError):
            here.broker  # noqa: B018
    assert len(tries) == 1

"""The table of mistakes: what is looked for, and the remedy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gonogo_cli.operate.mistakes import of_broker, of_database, of_machine, of_service
from gonogo_cli.operate.mistakes.machine import Machine


@dataclass(frozen=True)
class Mistake:
    """A usual mistake. The first line of `find`'s description says what it leads to."""

    name: str
    find: Callable[[Machine], str | None]
    remedy: str
    is_advice: bool = False
    """It is a choice with a price, and doesn't change the exit code."""

    @property
    def consequence(self) -> str:
        """Return what the mistake leads to."""
        return (self.find.__doc__ or "").splitlines()[0]


MISTAKES: tuple[Mistake, ...] = (
    Mistake("broker-eviction", of_broker.eviction, "set `maxmemory-policy noeviction` in Redis"),
    Mistake("broker-memory", of_broker.memory, "raise Redis's `maxmemory`, or start a background"),
    Mistake("broker-version", of_broker.version, "install Redis 6.2 or newer, or Valkey"),
    Mistake("broker-clock", of_broker.clock, "run an NTP client on both machines"),
    Mistake("broker-clients", of_broker.clients, "raise Redis's `maxclients`"),
    Mistake(
        "broker-persistence",
        of_broker.persistence,
        "nothing to do where that is fine; else `appendonly yes` in Redis",
        is_advice=True,
    ),
    Mistake(
        "broker-password",
        of_broker.password,
        "run `gonogo secrets`: it makes an account each for the service and the hosts",
    ),
    Mistake("database-schema", of_database.schema, "run `gonogo db upgrade`"),
    Mistake("database-clock", of_database.clock, "run an NTP client on both machines"),
    Mistake("database-version", of_database.version, "upgrade to PostgreSQL 15 or newer"),
    Mistake(
        "database-timeouts",
        of_database.timeouts,
        "`ALTER ROLE gonogo SET statement_timeout = '30min'`, and the other alike",
        is_advice=True,
    ),
    Mistake(
        "database-connections",
        of_database.connections,
        "raise PostgreSQL's `max_connections`: a process takes up to 30",
    ),
    Mistake(
        "database-file",
        of_database.shared_file,
        "move SQLite's file to a local disk, or use PostgreSQL",
    ),
    Mistake(
        "permissions",
        of_machine.permissions,
        "`chmod go= FILE`, then replace the secrets in it",
    ),
    Mistake("folders", of_machine.writable, "`chown` the folder to the user of the processes"),
    Mistake(
        "disks",
        of_machine.disk,
        "free space, or remove more: `gonogo db prune`, with fewer days in the settings",
    ),
    Mistake("open-files", of_machine.open_files, "`ulimit -n 4096`, or `LimitNOFILE` of systemd"),
    Mistake("driver", of_machine.driver, "install tt-kmd, then `modprobe tenstorrent`"),
    Mistake(
        "device-files",
        of_machine.device_files,
        "add the user to the group of /dev/tenstorrent, with the driver's udev rule",
    ),
    Mistake(
        "hugepages",
        of_machine.hugepages,
        "install tenstorrent-tools (its hugepages-setup), then restart; or switch the IOMMU on",
    ),
    Mistake(
        "secret-key",
        of_service.secret_key,
        "run `gonogo secrets`, or set 32 random bytes; tokens and hosts have to be made anew",
    ),
    Mistake(
        "public-address",
        of_service.public_address,
        "put a proxy with TLS in front, and name it in GONOGO_PROXIES and GONOGO_URL",
    ),
    Mistake("host-names", of_service.host_names, "add the name to GONOGO_HOSTS"),
    Mistake("background", of_service.background, "start `gonogo background`"),
    Mistake("duties", of_service.duties, "restart the background processes, and read their logs"),
    Mistake("queues", of_service.queues, "start a worker for the queue, or cancel its jobs"),
    Mistake("worker-version", of_service.versions, "upgrade GoNoGo on these hosts"),
    Mistake(
        "silent-hosts",
        of_service.silent_hosts,
        "start the host and its workers, or `gonogo hosts revoke NAME`",
    ),
    Mistake("host-clocks", of_service.host_clocks, "run an NTP client on the host"),
    Mistake(
        "refused-messages",
        of_service.refused,
        "read `gonogo hosts list`, and what each reason means (manual: protocol)",
        is_advice=True,
    ),
    Mistake("outbox", of_service.outbox, "start `gonogo background`, and read its log"),
    Mistake(
        "webhooks",
        of_service.webhooks,
        "read `gonogo webhooks deliveries ID`; disable a receiver that is gone",
    ),
    Mistake("ingest", of_service.ingest, "start another `gonogo background`, and read its log"),
    Mistake(
        "hook-secrets",
        of_service.hook_secrets,
        "set GONOGO_GITHUB_WEBHOOK_SECRET or GONOGO_CI_WEBHOOK_SECRET",
    ),
)
"""By the part of the installation that they are about."""

"""Mistakes with Redis."""

from __future__ import annotations

from urllib.parse import urlsplit

from gonogo_cli.operate.mistakes.machine import Machine, NotHere

LEAST_VERSION = (6, 2)
MAX_MEMORY_SHARE = 0.8
MAX_CLIENTS_SHARE = 0.8
MAX_SKEW_S = 10.0
LOCAL = ("localhost", "127.0.0.1", "::1")


def eviction(machine: Machine) -> str | None:
    """Messages are dropped when the memory is full."""
    policy = machine.broker.info.get("maxmemory_policy")
    return None if policy in (None, "noeviction") else f"Redis has maxmemory-policy {policy}"


def memory(machine: Machine) -> str | None:
    """Redis has little memory left."""
    info = machine.broker.info
    used, most = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    if not most or used < MAX_MEMORY_SHARE * most:
        return None
    return f"Redis uses {used / 2**20:.0f} of {most / 2**20:.0f} MiB"


def version(machine: Machine) -> str | None:
    """Redis is too old."""
    text = str(machine.broker.info.get("redis_version", ""))
    numbers = tuple(int(part) for part in text.split(".")[:2] if part.isdecimal())
    return f"Redis is {text}" if numbers and numbers < LEAST_VERSION else None


def clock(machine: Machine) -> str | None:
    """The broker's clock is wrong."""
    ahead_s = machine.broker.ahead_s
    if ahead_s is None or abs(ahead_s) <= MAX_SKEW_S:
        return None
    return f"the broker's clock is {ahead_s:+.0f} s ahead of this machine's"


def clients(machine: Machine) -> str | None:
    """Redis soon refuses connections."""
    used = int(machine.broker.info.get("connected_clients", 0))
    most = int(machine.broker.config.get("maxclients", 0))
    return (
        f"Redis has {used} of at most {most} connections"
        if most and used > MAX_CLIENTS_SHARE * most
        else None
    )


def persistence(machine: Machine) -> str | None:
    """A restart of Redis loses the messages that are on the way; that work runs again."""
    broker = machine.broker
    if broker.info.get("aof_enabled") != 0 or broker.config.get("save", "?"):
        return None
    return "Redis keeps nothing on disk: after a restart, work that was on the way runs again"


def password(machine: Machine) -> str | None:
    """Everybody who reaches Redis can send messages."""
    if machine.settings.broker_url is None:
        raise NotHere("GONOGO_BROKER_URL is not set")
    parts = urlsplit(machine.settings.broker_url)
    if parts.scheme == "unix" or parts.password or parts.hostname in LOCAL:
        return None
    return f"GONOGO_BROKER_URL names {parts.hostname} without a password"

"""Mistakes with the service: its key, its address, its processes, its hosts and what waits."""

from __future__ import annotations

from urllib.parse import urlsplit

from gonogo_cli.operate.mistakes.machine import Machine, NotHere
from gonogo_settings.release import release

LOCAL = ("localhost", "127.0.0.1", "::1")
LEAST_CHARACTERS = 10
"""Different characters of a key; 32 random bytes in hex or base64 have more."""
_EXAMPLES = ("changeme", "change-me", "change_me", "secret", "example", "password", "12345678")
MAX_OUTBOX_S = 600.0
MAX_WEBHOOK_LAG_S = 3600.0
MAX_INGEST_LAG_S = 300.0
DUTIES = (
    "dispatcher",
    "reaper",
    "assess",
    "scheduler",
    "bisecting",
    "delivery",
    "hooks",
    "webhooks",
)
"""Duties that some background process holds at any moment; others rest longer than their lease."""


def secret_key(machine: Machine) -> str | None:
    """Everybody can make logins and messages."""
    key = machine.settings.secret_key
    if key is None:
        if machine.is_production:
            return "GONOGO_SECRET_KEY is not set"
        raise NotHere("`gonogo up` makes its key by itself")
    text = key.get_secret_value().lower()
    if len(set(text)) < LEAST_CHARACTERS or any(word in text for word in _EXAMPLES):
        return "GONOGO_SECRET_KEY looks like an example, not like random bytes"
    return None


def public_address(machine: Machine) -> str | None:
    """Tokens and logins cross the network unencrypted."""
    settings = machine.settings
    parts = urlsplit(settings.url or "")
    if parts.scheme == "http" and parts.hostname not in (*LOCAL, None):
        return f"GONOGO_URL is http://{parts.hostname}, without TLS"
    if settings.host not in LOCAL and machine.is_production and not settings.proxies:
        return f"the API binds {settings.host}, and GONOGO_PROXIES names no proxy with TLS"
    return None


def host_names(machine: Machine) -> str | None:
    """Requests to the public address are refused with 421."""
    name = urlsplit(machine.settings.url or "").hostname
    if name is None or name in LOCAL or name in machine.settings.hosts:
        return None
    return f"GONOGO_HOSTS lacks {name}, the host of GONOGO_URL"


def background(machine: Machine) -> str | None:
    """Nothing is dispatched, stored or delivered."""
    facts = machine.facts
    return "no background process is running" if not facts.background else None


def duties(machine: Machine) -> str | None:
    """A duty isn't done although processes run: one hangs, or is of another version."""
    facts = machine.facts
    if not facts.background:
        raise NotHere("no background process is running")
    idle = [duty for duty in DUTIES if duty not in facts.duties]
    return f"no process holds {', '.join(idle)}" if idle else None


def queues(machine: Machine) -> str | None:
    """Jobs wait for ever, and fail at their deadline."""
    unserved = machine.facts.unserved
    return f"no worker serves {', '.join(unserved)}" if unserved else None


def versions(machine: Machine) -> str | None:
    """A worker may not understand its messages."""
    known = machine.facts.versions
    others = {version: number for version, number in known.items() if version != release()}
    if not others:
        return None
    words = ", ".join(f"{number} of {version}" for version, number in sorted(others.items()))
    return f"workers of another version than {release()}: {words}"


def silent_hosts(machine: Machine) -> str | None:
    """A host of devices is off, or can't reach the broker."""
    silent = [f"{host.name} since {host.heard_at:%Y-%m-%d %H:%M}" for host in machine.facts.silent]
    return f"silent hosts: {', '.join(silent)}" if silent else None


def host_clocks(machine: Machine) -> str | None:
    """A host's messages look old, or from the future, and are refused."""
    skewed = [f"{name} by {ahead:+.0f} s" for name, ahead in sorted(machine.facts.skewed.items())]
    return f"clocks of hosts are wrong: {', '.join(skewed)}" if skewed else None


def refused(machine: Machine) -> str | None:
    """Messages were refused: forged, foreign, or of a host with a wrong key."""
    counts = sorted(machine.facts.refused.items())
    words = ", ".join(f"{count} of {sender}" for sender, count in counts)
    return f"messages were refused: {words}" if counts else None


def outbox(machine: Machine) -> str | None:
    """Messages wait inside the database."""
    age_s = machine.facts.outbox_s
    return f"the oldest message waits for {age_s:.0f} s" if age_s > MAX_OUTBOX_S else None


def webhooks(machine: Machine) -> str | None:
    """Receivers don't answer."""
    facts = machine.facts
    if facts.webhook_lag_s <= MAX_WEBHOOK_LAG_S:
        return None
    return f"{facts.deliveries} messages wait, one for {facts.webhook_lag_s:.0f} s after its time"


def ingest(machine: Machine) -> str | None:
    """Results arrive faster than they are stored, or got lost on the way."""
    lag_s = machine.facts.ingest_lag_s
    return f"results are on the way for {lag_s:.0f} s" if lag_s > MAX_INGEST_LAG_S else None


def hook_secrets(machine: Machine) -> str | None:
    """No delivery of GitHub or other CI is taken."""
    settings = machine.settings
    if not machine.facts.rules or settings.github_webhook_secret or settings.ci_webhook_secret:
        return None
    return f"{machine.facts.rules} rules, and no secret of incoming deliveries"

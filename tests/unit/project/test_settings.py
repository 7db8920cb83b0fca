"""Settings: read from the environment, checked at the start of a process, secrets never printed."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

import gonogo_settings


def test_without_any_variable_the_defaults_serve_loopback_only() -> None:
    config = gonogo_settings.load()
    assert (config.host, config.port, config.database_url, config.embedded) == (
        "127.0.0.1",
        8717,
        None,
        False,
    )
    assert config.hosts == ("localhost", "127.0.0.1", "[::1]")
    assert config.max_elements == 64 * 2**20


def test_a_process_reads_its_settings_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = gonogo_settings.load()
    monkeypatch.setenv("GONOGO_PORT", "1")
    assert gonogo_settings.load() is first


def test_lists_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GONOGO_HOSTS", "a.example.org, b.example.org,")
    assert gonogo_settings.load().hosts == ("a.example.org", "b.example.org")


def test_an_empty_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GONOGO_DATABASE_URL", "")
    assert gonogo_settings.load().database_url is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GONOGO_PORT", "70000"),
        ("GONOGO_SECRET_KEY", "x" * 31),
        ("GONOGO_BROKER_URL", "amqp://host"),
        ("GONOGO_MAX_ELEMENTS", "0"),
        ("GONOGO_POLL_S", "-1"),
        ("GONOGO_HEARTBEAT_TIMEOUT_S", "6"),
        ("GONOGO_LOG_LEVEL", "loud"),
    ],
)
def test_a_wrong_value_is_refused_at_the_start(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ValidationError) as problem:
        gonogo_settings.load()
    assert name.removeprefix("GONOGO_").lower() in str(problem.value)


def test_both_spellings_of_a_unix_socket_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GONOGO_BROKER_URL", "redis+socket:///run/redis.sock?virtual_host=2")
    assert gonogo_settings.load().broker_url == "unix:///run/redis.sock?db=2"


def test_secrets_are_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "0123456789" * 4
    for name in ("GONOGO_SECRET_KEY", "GONOGO_TOKEN"):
        monkeypatch.setenv(name, secret)
    config = gonogo_settings.load()
    assert secret not in f"{config!r} {config}"
    assert config.secret_key is not None
    assert config.secret_key.get_secret_value() == secret

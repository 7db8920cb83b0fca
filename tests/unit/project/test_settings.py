"""Settings: read from the environment, checked at the start of a process, secrets never printed."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

import gonogo.settings
from gonogo.cli.kit import private_process
from gonogo.errors import JobError
from gonogo_service.kit.database.engine import normalize


def test_without_any_variable_the_defaults_serve_loopback_only() -> None:
    config = gonogo.settings.load()
    assert (config.host, config.port) == ("127.0.0.1", 8717)
    assert (config.database_url, config.embedded) == (None, False)
    assert config.hosts == ("localhost", "127.0.0.1", "[::1]")
    assert config.max_elements == 64 * 2**20


def test_a_process_reads_its_settings_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = gonogo.settings.load()
    monkeypatch.setenv("GONOGO_PORT", "1")
    assert gonogo.settings.load() is first


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("hosts", "a.example.org, b.example.org,", ("a.example.org", "b.example.org")),
        ("database_url", "", None),
        (
            "proxies",
            "127.0.0.1, 172.18.0.0/16,fd00::/8",
            ("127.0.0.1", "172.18.0.0/16", "fd00::/8"),
        ),
        ("broker_url", "redis+socket:///r.sock?virtual_host=2", "unix:///r.sock?db=2"),
    ],
)
def test_a_variable_is_read(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, value: object
) -> None:
    monkeypatch.setenv(f"GONOGO_{name.upper()}", text)
    assert getattr(gonogo.settings.load(), name) == value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GONOGO_PORT", "70000"),
        ("GONOGO_SECRET_KEY", "x" * 31),
        ("GONOGO_BROKER_URL", "amqp://host"),
        ("GONOGO_MAX_ELEMENTS", "-98765"),
        ("GONOGO_POLL_S", "-1"),
        ("GONOGO_HEARTBEAT_TIMEOUT_S", "6.54321"),
        ("GONOGO_LOG_LEVEL", "loud"),
        ("GONOGO_CI_WEBHOOK_SECRET", "whsec_c2hvcnQ="),
        ("GONOGO_GITHUB_WEBHOOK_SECRET", "tooshort"),
        ("GONOGO_TOKEN", "gng_password\n"),
        ("GONOGO_GITHUB_TOKEN", "gh_password€"),
        ("GONOGO_BROKER_URL", "redis://:pass/word@host:6379/0"),
        ("GONOGO_DATABASE_URL", "mysql://gonogo:password@host/gonogo"),
        ("GONOGO_URL", "https://user:pass/word@host"),
        ("GONOGO_WEBHOOK_PRIVATE", "10.0.0.0/8,password"),
        ("GONOGO_CHILD_VARIABLES", "MINE, *"),
        ("GONOGO_CHILD_VARIABLES", "GONOGO_SECRET_KEY"),
    ],
)
def test_a_wrong_value_is_refused_at_the_start_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(gonogo.settings.SettingsError) as problem:
        gonogo.settings.load()
    message = "".join(traceback.format_exception(problem.value))
    assert name.removeprefix("GONOGO_").lower() in str(problem.value).lower()
    assert not any(shown in message for shown in (value, "pass/", "password", "pydantic.dev"))


@pytest.mark.parametrize(
    "proxies", ["*", "nginx", "127.0.0.1,*", "0.0.0.0/0", "::/0", "172.18.0.1/16", "127.0.0.1:80"]
)
def test_only_addresses_and_networks_are_proxies(
    monkeypatch: pytest.MonkeyPatch, proxies: str
) -> None:
    """uvicorn takes `*`, and then believes whatever a client says of itself."""
    monkeypatch.setenv("GONOGO_PROXIES", proxies)
    place = len(proxies.split(","))
    words = rf"GONOGO_PROXIES: number {place} is no address or network .*allowed: such as 127\.0\.0"
    with pytest.raises(gonogo.settings.SettingsError, match=words):
        gonogo.settings.load()


@pytest.mark.parametrize(
    "url", ["postgresql://gonogo:password@host:hush/db", "hush://password", "password"]
)
def test_a_database_s_address_that_can_t_be_read_is_not_shown(url: str) -> None:
    with pytest.raises(JobError, match="GONOGO_DATABASE_URL") as problem:
        normalize(url)
    shown = "".join(traceback.format_exception(problem.value))
    assert "password" not in shown.replace("user:password@host", "")


def test_a_secret_comes_from_a_file_of_its_owner_s_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "gonogo_secret_key"
    file.write_text("k" * 40 + "\n")
    file.chmod(0o400)
    places = {"GONOGO_SECRET_KEY_FILE": file, "CREDENTIALS_DIRECTORY": tmp_path}
    for variable, value in ((name, str(path)) for name, path in places.items()):
        monkeypatch.setenv(variable, value)
        gonogo.settings.load.cache_clear()
        key = gonogo.settings.load().secret_key
        assert key is not None
        assert key.get_secret_value() == "k" * 40
        monkeypatch.delenv(variable)
    monkeypatch.setenv("GONOGO_SECRET_KEY_FILE", str(file))
    for mode, words in ((0o644, "every user"), (0o620, "its group"), (0o602, "every user")):
        file.chmod(mode)
        gonogo.settings.load.cache_clear()
        with pytest.raises(gonogo.settings.SettingsError, match=f"{words}.*chmod 600"):
            gonogo.settings.load()
    file.chmod(0o600)
    monkeypatch.setenv("GONOGO_SECRET_KEY", "k" * 40)
    with pytest.raises(gonogo.settings.SettingsError, match="both set"):
        gonogo.settings.load()
    monkeypatch.delenv("GONOGO_SECRET_KEY")
    for path in (tmp_path / "none", tmp_path):
        monkeypatch.setenv("GONOGO_SECRET_KEY_FILE", str(path))
        with pytest.raises(gonogo.settings.SettingsError, match="can't be read"):
            gonogo.settings.load()


def test_a_command_hides_every_secret_setting() -> None:
    variables = {f"GONOGO_{name.upper()}" for name in gonogo.settings.secret_names()}
    assert variables == private_process.SECRETS


def test_secrets_are_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "0123456789" * 4
    for name in ("GONOGO_SECRET_KEY", "GONOGO_TOKEN"):
        monkeypatch.setenv(name, secret)
    config = gonogo.settings.load()
    assert secret not in f"{config!r} {config}"
    assert config.secret_key is not None
    assert config.secret_key.get_secret_value() == secret

"""The parts of the background process, as its settings choose them; nothing connects."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from pydantic import SecretStr

from gonogo.settings import Settings
from gonogo_service.background.process import create_background

ALWAYS = [
    "dispatcher",
    "reaper",
    "rollups",
    "retention",
    "assess",
    "scheduler",
    "bisecting",
    "delivery",
    "hooks",
    "presence",
    "webhooks",
]
TOKEN = {"github_token": SecretStr("ghp_token")}
BAD_APP = {"github_app_id": "17", "github_app_key": SecretStr("no key")}


@pytest.mark.parametrize(
    ("settings", "more"),
    [
        ({}, []),
        (TOKEN, ["github"]),
        (BAD_APP, []),  # everything else goes on
    ],
)
def test_the_settings_choose_the_roles(settings: dict[str, Any], more: list[str]) -> None:
    background = create_background(
        Settings(
            database_url="sqlite:///nowhere/gonogo.sqlite",
            broker_url="redis://127.0.0.1:1/0",
            secret_key=SecretStr("w" * 40),
            **settings,
        ),
        threading.Event(),
    )
    assert [role.name.partition("/")[0] for role in background.roles] == ALWAYS + more
    assert len(background.closing) == (2 if "github" in more else 0)
    background.context.stop.set()
    background.run()  # it was asked to stop before the database was there


def test_missing_settings_are_named() -> None:
    with pytest.raises(ValueError, match="GONOGO_BROKER_URL, GONOGO_SECRET_KEY"):
        create_background(Settings(database_url="sqlite:///x"), threading.Event())

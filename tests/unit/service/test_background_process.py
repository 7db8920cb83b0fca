"""The parts of the background process, as its settings choose them; nothing connects."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from pydantic import SecretStr

from gonogo.settings import Settings
from gonogo_service.background.deliver import make_deliver
from gonogo_service.background.process import create_background

ALWAYS = [
    "dispatcher",
    "reaper",
    "retention",
    "assess",
    "scheduler",
    "bisecting",
    "deliver",
    "presence",
]
TOKEN = {"github_token": SecretStr("ghp_token")}
BAD_APP = {"github_app_id": "17", "github_app_key": SecretStr("no key")}


@pytest.mark.parametrize(
    ("settings", "clients"),
    [
        ({}, 0),
        (TOKEN, 2),
        (BAD_APP, 0),  # everything else goes on
    ],
)
def test_the_settings_choose_the_roles(settings: dict[str, Any], clients: int) -> None:
    background = create_background(
        Settings(
            database_url="sqlite:///nowhere/gonogo.sqlite",
            broker_url="redis://127.0.0.1:1/0",
            secret_key=SecretStr("w" * 40),
            **settings,
        ),
        threading.Event(),
    )
    assert [role.name.partition("/")[0] for role in background.roles] == ALWAYS
    assert len(make_deliver(background.context).clients) == clients
    background.context.stop.set()
    background.run()  # it was asked to stop before the database was there


def test_missing_settings_are_named() -> None:
    with pytest.raises(ValueError, match="GONOGO_BROKER_URL, GONOGO_SECRET_KEY"):
        create_background(Settings(database_url="sqlite:///x"), threading.Event())

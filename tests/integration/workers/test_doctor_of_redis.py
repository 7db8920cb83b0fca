"""`gonogo doctor` with a real Redis: its policy, and its clock."""

from __future__ import annotations

import pytest
from redis import Redis

import gonogo.settings
from gonogo_service.cli.operate import doctor


def test_the_policy_and_the_clock_of_a_broker_are_checked(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GONOGO_BROKER_URL", redis_url)
    gonogo.settings.load.cache_clear()
    client = Redis.from_url(redis_url)
    before = client.config_get("maxmemory-policy")["maxmemory-policy"]
    try:
        client.config_set("maxmemory-policy", "allkeys-lru")
        redis, clock = doctor.findings(["redis", "clock"])
    finally:
        client.config_set("maxmemory-policy", before)
        client.close()
    assert redis.state == "fail"
    assert "maxmemory-policy allkeys-lru" in redis.message
    assert clock.state == "ok"
    assert "ahead of the broker's" in clock.message

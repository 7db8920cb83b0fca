"""`gonogo doctor --deep` on stored data: each damage is found, and nothing where all is well."""

from __future__ import annotations

import json
import sys

import pytest
from redis import Redis
from sqlalchemy import Engine, text

import gonogo_settings
import stored_jobs
from gonogo_cli.__main__ import main
from gonogo_cli.operate.mistakes import machine as machines
from gonogo_cli.operate.mistakes import of_broker
from gonogo_cli.operate.mistakes.machine import Machine
from gonogo_settings import Settings
from gonogo_storage.access import audit
from gonogo_storage.db.encoding import utcnow
from gonogo_storage.db.engine import reading, session
from gonogo_storage.devices import workers
from gonogo_storage.ops import consistency, installation


def _filled(engine: Engine) -> None:
    with session(engine) as current:
        for wrong in (True, False):
            stored_jobs.finished(current, wrong=wrong)
        audit.record(current, actor="me", action="job.submitted", subject="x")
        audit.record(current, actor="me", action="job.cancelled", subject="x")


def _problems(engine: Engine) -> dict[str, list[str]]:
    problems_by_check = {check.name: consistency.run(engine, check) for check in consistency.CHECKS}
    return {name: problems for name, problems in problems_by_check.items() if problems}


DAMAGES = [
    # in an order in which no damage hides the next one
    ("UPDATE audit SET actor = 'you' WHERE number = 1", "audit", "entry 1 was changed"),
    ("UPDATE artifacts SET content = '{}'", "artifacts", "is not the one that was stored"),
    ("UPDATE day_rollups SET seeds = seeds + 1", "roll-ups", "the sums by day of test"),
    ("DELETE FROM job_tallies", "roll-ups", "the statistics of job"),
    ("UPDATE jobs SET counts = '{\"pass\": 8}'", "counts", "counts the verdicts"),
    ("UPDATE jobs SET done = done + 1", "counts", "counts 9 seeds, and has 8"),
]


def test_each_damage_is_found_and_nothing_else(engine: Engine) -> None:
    _filled(engine)
    assert _problems(engine) == {}
    expected = set()
    for statement, name, words in DAMAGES:
        with engine.begin() as connection:
            assert connection.execute(text(statement)).rowcount
        expected.add(name)
        problems = _problems(engine)
        assert problems.keys() == expected, statement
        assert any(words in problem for problem in problems[name]), problems[name]


def test_the_facts_of_an_installation_are_read_from_either_database(engine: Engine) -> None:
    with session(engine) as current:
        stored_jobs.submit(current)
        workers.heard(
            current, "w", queues=[], device=None, attempt=None, version="0.9", now=utcnow()
        )
    with reading(engine) as current:
        facts = installation.read(current, heartbeat_timeout_s=30.0)
    assert facts.versions == {"0.9": 1}
    assert facts.unserved == ("emulator.wormhole.n150",)
    assert facts.background == 0
    if engine.dialect.name == "postgresql":
        assert facts.limits == {
            "statement_timeout": "0",
            "idle_in_transaction_session_timeout": "0",
        }
        assert facts.version is not None
        assert facts.version >= 14


def test_a_real_broker_says_its_policy_and_its_clock(redis_url: str) -> None:
    client = Redis.from_url(redis_url)
    before = client.config_get("maxmemory-policy")["maxmemory-policy"]
    try:
        client.config_set("maxmemory-policy", "allkeys-lru")
        broker = machines.read_broker(Settings(broker_url=redis_url))
        assert broker.ahead_s is not None
        assert abs(broker.ahead_s) < 5.0
        machine = Machine(Settings(broker_url=redis_url))
        assert of_broker.eviction(machine) == "Redis has maxmemory-policy allkeys-lru"
    finally:
        client.config_set("maxmemory-policy", before)
        client.close()


def test_the_command_names_the_remedy_and_exits_with_3(
    migrated_sqlite_url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("GONOGO_DATABASE_URL", migrated_sqlite_url)
    gonogo_settings.load.cache_clear()

    def doctor(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["gonogo", "doctor", "--deep", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), capsys.readouterr().out

    data = [word for check in consistency.CHECKS for word in ("--part", f"data-{check.name}")]
    code, out = doctor(*data)
    assert (code, out.count("ok  ")) == (0, len(consistency.CHECKS))
    code, out = doctor("--part", "background", "--part", "broker-eviction", "--json")
    report = json.loads(out)
    assert (code, report["ok"]) == (3, False)
    assert report["findings"] == [
        {
            "part": "broker-eviction",
            "ok": None,
            "words": "GONOGO_BROKER_URL is not set",
            "remedy": None,
        },
        {
            "part": "background",
            "ok": False,
            "words": "no background process is running",
            "remedy": "start `gonogo background`",
        },
    ]
    assert "remedy: start `gonogo background`" in doctor("--part", "background")[1]
    assert doctor("--part", "no-such-part")[0] == 2

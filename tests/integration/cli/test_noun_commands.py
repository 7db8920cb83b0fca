"""`gonogo NOUN list|show|create|change|remove` against a server: one grammar for all nouns."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import copyfile
from typing import Any

import pytest
import yaml

import stored_jobs
from api import on_port
from gonogo.cli import commands
from gonogo.cli.app import COMMANDS, load, main
from gonogo.cli.kit import client as clients
from gonogo.flakiness.flag_kinds import FlagKind
from gonogo.spec.verdicts import Verdict
from gonogo_service.flags import store as flags
from gonogo_service.flags.model import FlagRow
from gonogo_service.hosts import store as hosts
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.suites.noun import MAX_TEXT
from records import pick
from suite_runs import SUITE

SUBMIT = "submit --shape 2,32"
EVERY_HOUR = "schedules create x --suite nightly --cron '1 * * * *'"
WRONG = {
    f"{SUBMIT} --build correct --label night": "--label: has no = (allowed: NAME=VALUE)",
    "schedules change x": "nothing to change: name an option (gonogo schedules change --help)",
    "flags list --kind hollow": "unknown kind of flag; did you mean 'hollow pass'? (allowed: on",
    "suites run nightly --label =x": "--label: has no name (allowed: NAME=VALUE); got '=x'",
}
"""Command lines with a wrong value, which are refused -> a part of what is said about them."""
MISSPELLED = {
    "flags list --state opne": (2, "state: unknown value; did you mean 'open'? (allowed: one of o"),
    "jobs list --state runing": (2, "did you mean 'running'?"),
    "jobs list --build corect": (0, "There is no build 'corect'; did you mean 'correct'?"),
    "builds create x --executor emulatr": (2, "executor: unknown executor; did you mean 'emulato"),
    f"{EVERY_HOUR} --build corect": (2, "builds.0: unknown build of layernorm_bw; did you mean"),
    f"{SUBMIT} --kernel rmsnorm_fw --build corect": (
        2,
        "unknown build of rmsnorm_fw; did you mean",
    ),
    f"{SUBMIT} --build correct --board n105": (2, "unknown board; did you mean 'n150'?"),
    f"{SUBMIT} --build correct --arch blackhole": (2, "is a board with chips of wormhole"),
    "suites run nightli": (2, "there is no suite with this name; did you mean 'nightly'?"),
}
"""Command lines with a misspelled name -> the exit code, and a part of what is said about them."""

NOUNS = [name for name, entry in COMMANDS.items() if entry.panel == commands.NOUNS]
Gonogo = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[str]:
    """The address of a server with a job, a flag and a device."""
    place = tmp_path_factory.mktemp("nouns") / "gonogo.sqlite"
    copyfile(sqlite_template, place)
    with on_port(f"sqlite:///{place}") as (client, context):
        with context.session() as session:
            job = stored_jobs.finished(session)
            stored_jobs.device(session)
            hosts.add(session, context.keys, "lab-1", actor="test")
            place = {"arch": job.target.arch, "board": job.target.board}
            finding = FlagRow.finding(FlagKind.hangs, job, {"words": "[b]it hung[/b]"}, **place)
            flags.upsert(session, finding, now=utcnow())
        yield str(client.base_url)


@pytest.fixture
def gonogo(url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Gonogo:
    """Run the command against the server: (exit code, stdout, stderr)."""
    monkeypatch.setenv("GONOGO_URL", url)

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["gonogo", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        out, error = capsys.readouterr()
        return int(ended.value.code or 0), out, error

    return run


def of(gonogo: Gonogo, *words: str) -> Any:
    """Return what a command prints with --json; it must succeed."""
    code, out, error = gonogo(*words, "--json")
    assert (code, error) == (0, ""), error
    return json.loads(out)


def test_every_noun_has_list_and_show() -> None:
    for noun in (*NOUNS, "kernels"):
        assert {"list", "show"} <= set(load(noun).commands), noun
    verbs = {verb for noun in NOUNS for verb in load(noun).commands}
    of_some = {"push", "cancel", "run", "test", "rotate", "deliveries", "verify", "add", "join"}
    assert verbs <= {"list", "show", "create", "change", "remove", "revoke", *of_some}


PUSHED = {
    "crlf.yaml": yaml.safe_dump(SUITE | {"name": "pushed"}).replace("\n", "\r\n"),
    "long.json": json.dumps(SUITE | {"name": "pushed"}) + " " * MAX_TEXT,
    "own.toml": """
        name = "pushed"
        [[entries]]
        seeds = {count = 2}
        test = {kernel = "layernorm_bw", shape = [8, 64]}
    """,
}


@pytest.mark.parametrize("name", PUSHED)
def test_a_suite_is_pushed_with_the_text_of_its_file(
    gonogo: Gonogo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    bodies: list[dict[str, Any]] = []
    call = clients.Client.call

    def recorded(*words: Any, **options: Any) -> Any:
        bodies.append(options["body"])
        return call(*words, **options)

    monkeypatch.setattr(clients.Client, "call", recorded)
    file = tmp_path / name
    file.write_bytes(PUSHED[name].encode())
    code, out, error = gonogo("suites", "push", str(file))
    assert (code, out[:14]) == (0, "stored pushed,"), error
    sent = {"crlf.yaml": {"path": name, "text": PUSHED[name]}}
    assert bodies[0].get("file") == sent.get(name)
    assert ("more than 200,000 characters: no patch" in error) is (name == "long.json")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("submit --shape 8,64 --build correct --rtol nan", "test.tolerance.rtol: is not a JSON"),
        ("waivers create --test a --reason b --days 2 --expires 2026-12-31", "by --expires"),
        ("jobs list --build \udcff", r"'\udcff' isn't UTF-8 text"),
        ("runs show \udcff", "isn't UTF-8 text"),
    ],
)
def test_a_value_that_can_t_be_sent_is_told_in_one_line(
    gonogo: Gonogo, line: str, words: str
) -> None:
    code, _, error = gonogo(*line.split())
    assert (code, words in error, error.count("\n")) == (2, True, 1), error


def test_each_noun_is_made_listed_shown_changed_and_removed(gonogo: Gonogo, tmp_path: Path) -> None:
    def ran(line: str) -> Any:
        return of(gonogo, *shlex.split(line))

    file = tmp_path / "suite.yaml"
    file.write_text(yaml.safe_dump(SUITE))
    (suite,) = ran(f"suites push {file}")["items"]
    assert (suite["name"], len(suite["tests"])) == ("nightly", 3)
    assert gonogo("suites", "push", str(file))[1] == "stored nightly, version 1: 3 tests\n"
    build = ran("builds create kernels-1 --executor ttnn --branch main")
    assert pick(build, "sequence", "branch") == (1, "main")
    when = "--suite nightly --cron '30 2 * * *' --label a=b"
    schedule = ran(f"schedules create 'every night' {when}")
    webhook = ran("webhooks create https://example.org/x --event job.finished")
    assert webhook["secret"].startswith("whsec_")
    waiver = ran("waivers create --name 'x *' --reason moved --days 3")
    assert ran("tokens list") == {"items": [], "next": None}
    (flag,) = ran("flags list --kind hangs")["items"]
    (device,) = ran("devices list")["items"]
    (job,) = ran("jobs list")["items"]
    run = ran("suites run nightly --build correct --label a=b")
    assert (run["jobs"], ran(f"runs show {run['id']}")["labels"]) == (3, {"a": "b"})
    run = ran("schedules run 'every night'")
    assert ran("schedules show 'every night'")["id"] == schedule["id"]
    code, _, error = gonogo("schedules", "show", "evry night")
    line = "gonogo: there is no schedule 'evry night'; did you mean 'every night'?\n"
    assert (code, error) == (2, line)
    keys = {
        "suites": "nightly",
        "builds": "kernels-1",
        "hosts": "lab-1",
        "schedules": schedule["id"],
        "webhooks": webhook["id"],
        "waivers": waiver["id"],
        "flags": flag["id"],
        "devices": device["device"],
        "jobs": job["id"],
        "runs": run["id"],
        "audit": of(gonogo, "audit", "list")["items"][-1]["id"],
    }
    for noun, key in keys.items():
        code, listed, _ = gonogo(noun, "list", *([] if noun == "devices" else ["-n", "500"]))
        assert (code, key in listed) == (0, True), noun
        record = ran(f"{noun} show {key}")
        assert key in (record.get("id"), record.get("name"), record.get("device"))
        code, shown, _ = gonogo(noun, "show", key)
        assert code == 0
        assert key in shown or noun == "runs"
    changed = gonogo("schedules", "change", "every night", "--resume")[1]
    assert f"changed every night  {schedule['id']}" in changed
    for line, words in (
        ("hooks list", "no deliveries"),
        ("gauges list --sharpness blunt", "no gauges"),
        ("bisections list", "no bisections"),
        ("audit list --action nothing", "no entries"),
    ):
        assert words in gonogo(*line.split())[2]
    label = Verdict(job["verdict"]).label
    same = of(gonogo, "jobs", "list", "--verdict", label)["items"]
    assert [item["id"] for item in same] == [job["id"]]
    assert ran("flags list --kind Hangs")["items"] == [flag]
    assert "  Hangs  " in gonogo("flags", "list")[1]
    shown = gonogo("flags", "show", flag["id"])[1]
    assert "[b]it hung[/b]" in shown
    assert "Hangs (hangs)" in shown

    for line, field, value in (
        (f"schedules change {schedule['id']} --pause", "paused", True),
        (f"webhooks change {webhook['id']} --disable", "state", "disabled"),
        (f"waivers change {waiver['id']} --owner kim", "owner", "kim"),
        (f"flags change {flag['id']} --state resolved --reason mended", "state", "resolved"),
        ("devices change lab-1/wormhole:0 --drain --reason fan", "drained", True),
    ):
        assert ran(line)[field] == value
    assert ran(f"runs cancel {run['id']}")["state"] in ("cancelled", "cancelling")
    for words, (code, line) in MISSPELLED.items():
        result = gonogo(*shlex.split(words))
        assert (result[0], line in result[2]) == (code, True), (words, result)
    for noun in ("suites", "schedules", "webhooks", "waivers"):
        code, out, _ = gonogo(noun, "remove", keys[noun])
        assert (code, keys[noun] in out) == (0, True)
    assert ran("webhooks list") == {"items": [], "next": None}
    assert gonogo("builds", "create", "kernels-0", "--executor", "ttnn")[0] == 0
    assert gonogo("builds", "remove", "kernels-0") == (0, "removed kernels-0\n", "")
    code, out, error = gonogo("builds", "show", "kernels-9")
    line = "gonogo: There is no build 'kernels-9'; did you mean 'kernels-1'?\n"
    assert (code, out, error) == (2, "", line)
    code, out, error = gonogo("compare", "corect", "tt-train-2025")
    assert (code, "no build 'corect'; did you mean 'correct'?" in error) == (3, True)
    assert "did you mean 'lab-1/wormhole:0'" in gonogo("devices", "show", "lab-1/wormhole:1")[2]


def test_a_list_goes_on_where_it_ended(gonogo: Gonogo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "PAGE", 7)
    whole = of(gonogo, "builds", "list", "--limit", "500")
    assert whole["next"] is None
    first = of(gonogo, "builds", "list", "--limit", "10")
    rest = of(gonogo, "builds", "list", "--limit", "500", "--cursor", first["next"])
    assert (len(first["items"]), first["items"] + rest["items"]) == (10, whole["items"])
    code, _, error = gonogo("builds", "list", "--limit", "10")
    assert (code, f"--cursor {first['next']}" in error) == (0, True)


def test_all_problems_of_a_file_are_told_each_on_a_line(gonogo: Gonogo, tmp_path: Path) -> None:
    file = tmp_path / "suite.yaml"
    wrong = [{"test": {"shape": [0]}}, {"test": {"shape": [1, 2], "epsilom": 1}}]
    file.write_text(yaml.safe_dump({**SUITE, "entries": wrong}))
    for words in (("suites", "push"), ("submit",)):
        code, out, error = gonogo(*words, str(file))
        assert (code, out) == (2, "")
        title, *lines = error.splitlines()
        assert title.endswith("suite.yaml has 2 problems:")
        assert "entries.0.test.shape.0: is too small (allowed: >= 1)" in lines[0]
        assert "entries.1.test.epsilom: unknown field; did you mean 'epsilon'?" in lines[1]


def test_a_host_that_has_a_code_is_listed_and_taken_back(gonogo: Gonogo) -> None:
    code, out, error = gonogo("hosts", "add", "lab-2", "--queue", "ttnn.wormhole.*")
    assert (code, out.startswith("gnc_")) == (0, True)
    assert "run `gonogo hosts join http" in error
    shown = of(gonogo, "hosts", "show", "lab-2")
    assert pick(shown, "state", "queues") == ("added", ["ttnn.wormhole.*"])
    assert out.strip() not in json.dumps(shown)
    assert "revoked" in gonogo("hosts", "revoke", "lab-2", "--reason", "sent to a stranger")[1]
    assert of(gonogo, "hosts", "show", "lab-2")["state"] == "revoked"
    (entry,) = of(gonogo, "audit", "list", "--action", "host.revoked")["items"]
    assert entry["subject"] == "lab-2"
    assert gonogo("hosts", "add", "-lab")[0] == 2
    assert "can't be a host's name" in gonogo("hosts", "add", "lab/2")[2]


def test_a_job_that_no_live_worker_serves_is_accepted_with_a_warning(gonogo: Gonogo) -> None:
    words = ("submit", "--shape", "2,32", "--build", "correct", "--board", "n300")
    code, out, error = gonogo(*words)
    assert (code, out.count("/jobs/")) == (0, 1)
    assert error == (
        "warning: no live worker serves the queue emulator.wormhole.n300 now (no worker is live); "
        "start one: GONOGO_ARCH=wormhole GONOGO_BOARD=n300 gonogo worker --executor emulator; "
        "the job waits until its queue deadline\n"
    )
    job = of(gonogo, *words)["id"]
    assert of(gonogo, "jobs", "show", job)["queue"] == "emulator.wormhole.n300"


def test_a_file_of_jobs_is_submitted_whole_or_not_at_all(gonogo: Gonogo, tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    test = {"kernel": "layernorm_fw", "shape": [2, 32]}
    target = {"executor": "emulator", "arch": "wormhole", "board": "n150"}
    job = {"test": test, "build": "correct", "target": target, "seeds": {"count": 1}}
    wrong = {**job, "test": {"kernel": "layernorm_fv", "shape": [0]}}
    file.write_text(yaml.safe_dump([job, wrong, {**job, "sedes": 1}, {**job, "build": "corect"}]))
    before = of(gonogo, "jobs", "list")["items"]
    code, out, error = gonogo("submit", str(file))
    assert (code, out) == (2, "")
    title, *lines = error.splitlines()
    assert title.endswith("jobs.yaml has 4 problems:")
    begins = ("jobs.1.test.kernel: ", "jobs.1.test.shape.0: ", "jobs.2.sedes: ", "jobs.3.build: ")
    for line, beginning in zip(lines, begins, strict=True):
        assert line.startswith(f"  {beginning}")
    assert of(gonogo, "jobs", "list")["items"] == before
    for jobs in ([job, job], {"jobs": [job, job]}):
        file.write_text(yaml.safe_dump(jobs))
        assert len(of(gonogo, "submit", str(file))["items"]) == 2


@pytest.mark.parametrize("words", WRONG)
def test_a_wrong_value_is_told_in_one_line(gonogo: Gonogo, words: str) -> None:
    code, out, error = gonogo(*shlex.split(words))
    assert (code, out) == (2, "")
    assert WRONG[words] in error
    assert error.count("\n") == 1

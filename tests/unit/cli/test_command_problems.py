"""The command line's errors, a problem document on stderr with --json, and the version."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import httpx
import pytest
import typer

from answering import GARBLED, answering, garbling
from gonogo.cli.kit.client import Client
from gonogo.errors import FieldError, InfrastructureError, quote
from gonogo.settings import release
from gonogo_service.cli import jobs
from patience import WAIT_S

ROOT = Path(__file__).resolve().parents[3]


def gonogo(*words: str, **files: Any) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **files}
    command = [sys.executable, "-m", "gonogo.cli", *words]
    return subprocess.run(command, text=True, timeout=WAIT_S, check=False, **pipes)


def failed(*words: str, code: int) -> dict[str, Any]:
    """Return the problem document of a command that fails with --json and an empty stdout."""
    done = gonogo(*words, "--json")
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    document: dict[str, Any] = json.loads(done.stderr)
    assert document["exit_code"] == code
    return document


def test_a_wrong_field_or_usage_is_a_problem_document_that_names_it() -> None:
    assert failed("check", "--seeds", "some", code=2)["type"] == "urn:gonogo:problem:usage"
    document = failed("check", "--shape", "0,4", "--build", "correct", code=2)
    assert document["type"] == "urn:gonogo:problem:invalid-field"
    same = {"field": "test.shape.0", "value": 0, "limit": ">= 1"}
    assert same.items() <= document.items()
    assert document["errors"] == [{**same, "message": "test.shape.0: is too small"}]


def test_no_server_is_a_problem_of_the_infrastructure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GONOGO_URL", "http://127.0.0.1:9")
    document = failed("jobs", "list", code=3)
    assert document["type"] == "urn:gonogo:problem:infrastructure"
    assert "127.0.0.1:9" in document["detail"]


@pytest.mark.parametrize("answer", GARBLED)
def test_a_garbled_answer_is_a_problem_of_the_infrastructure(answer: bytes) -> None:
    with garbling(answer) as url, Client(url) as client:
        with pytest.raises(InfrastructureError):
            client.call("GET", "/jobs")
        with pytest.raises(InfrastructureError):
            b"".join(client.parts("/results"))


def test_events_that_cannot_be_decoded_end_the_wait() -> None:
    with (
        garbling(GARBLED[-1]) as url,
        Client(url) as client,
        pytest.raises(InfrastructureError),
    ):
        client.wait("1")


@pytest.mark.parametrize(("status", "code"), [(422, 2), (503, 3)])
def test_the_servers_own_document_is_passed_on(
    monkeypatch: pytest.MonkeyPatch, status: int, code: int
) -> None:
    server_document = {"type": "urn:gonogo:problem:x", "title": "X", "status": status}
    server_document |= {"detail": "seeds: no", "field": "seeds", "value": 1, "limit": "2"}

    with answering(status, json.dumps(server_document).encode()) as url:
        monkeypatch.setenv("GONOGO_URL", url)
        document = failed("jobs", "list", code=code)
    assert "seeds: no" in document.pop("detail")
    assert document.items() >= {**server_document, "exit_code": code}.items() - {
        ("detail", "seeds: no")
    }


@pytest.mark.parametrize(("status", "path"), [(404, ""), (200, "/manual")])
def test_an_address_that_is_not_the_apis_is_said_to_be_one_without_its_page(
    monkeypatch: pytest.MonkeyPatch, status: int, path: str
) -> None:
    def page(_: httpx.Request) -> httpx.Response:
        return httpx.Response(status, text="<!doctype html>\n<html>")

    client = Client(f"http://127.0.0.1:8717{path}", token="x")
    client._http = httpx.Client(base_url=client.url, transport=httpx.MockTransport(page))
    with client, pytest.raises(InfrastructureError) as refused:
        client.call("GET", "/jobs")
    assert "GONOGO_URL is a server's own address without a path" in str(refused.value)
    assert "<" not in str(refused.value)


def test_a_full_disk_is_told_in_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        done = gonogo("kernels", "list", stdout=full)
    assert done.stderr == "gonogo: the output: No space left on device\n"
    assert done.returncode == 3


def test_a_cancelled_job_is_said_to_be_one_and_exits_with_1(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Answering:
        url = "http://127.0.0.1:1"

        def call(self, *_: object) -> dict[str, Any]:
            return {"words": None}

    job = {"id": "1", "kernel": "layernorm_bw", "state": "cancelled", "verdict": None}
    job |= {"done": 5, "total": 64, "counts": {"pass": 5}}
    client: Any = Answering()
    with pytest.raises(typer.Exit) as ended:
        jobs.report(client, job, False, jobs.FailOn.new)
    assert ended.value.exit_code == 1
    assert "canceled after 5 of 64 seeds" in capsys.readouterr().out


def test_there_is_one_version() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert release.release() == version
    assert gonogo("--version").stdout == f"gonogo {version}\n"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (7, 7),
        (2**53, 2**53),
        (2**60, str(2**60)),
        (10**4000, "10000000...(4001 digits)"),
        (10**5000, "a whole number of about 5000 digits"),
        ([4, 10**4000], "[4, 10000000...(4001 digits)]"),
        ({"a": "x" * 300}, '{"a": "' + "x" * 193 + "..."),
        (float("nan"), "nan"),
        ([float("inf")], "[Infinity]"),
        ({"file": Path("x")}, {"file": "x"}),
    ],
    ids=range(10),
)
def test_values_are_quoted_short(value: object, shown: object) -> None:
    assert quote(value) == shown


def test_a_message_survives_what_python_refuses_to_write() -> None:
    assert "digits" in str(FieldError("seeds", 10**5000, "is too large"))
    assert len(str(FieldError("seeds", [10**5000], f"{10**4000} seeds are too many"))) < 200

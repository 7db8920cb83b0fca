"""A worker's sender keeps every request, in order, while the service is away and through the end of
its process; what the service refuses is set aside, and its seeds become errors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gonogo.errors import InfrastructureError
from gonogo_workers.server.client import Server, packed
from gonogo_workers.server.host_file import Host, load
from gonogo_workers.server.sender import Request, Sender
from host_service import FINISH, GARBLED, RESULTS, TOKEN, HostService
from patience import WAIT_S
from running_service import until

ATTEMPT = "01234567-89ab-7def-8123-456789abcdef"
Make = Callable[..., Sender]


@pytest.fixture
def service() -> Iterator[HostService]:
    """A service that is away."""
    service = HostService()
    service.stop()
    yield service
    service.stop()


@pytest.fixture
def make(service: HostService, tmp_path: Path) -> Iterator[Make]:
    """A function that makes a sender of a host that keeps what it can't send in `tmp_path`."""
    host = Host(service.url, "lab-1", TOKEN)
    server = Server(lambda: host, host.url, None)
    yield lambda **options: Sender(server, tmp_path, **options)
    server.close()


def post(sender: Sender, *numbers: int, **body: Any) -> None:
    for number in numbers:
        row = {"seed": number, "repeat": 0, "device": "lab-1/x:0", "verdict": "pass"}
        content = {"rows": [row], "columns": [], "artifacts": [], **body}
        sender.post("PUT", f"/attempts/{ATTEMPT}/results/{number}", content)


def deliver(service: HostService, sender: Sender) -> list[dict[str, Any]]:
    """Start the service; return the results that it got."""
    service.start()
    return delivered(service, sender)


def delivered(service: HostService, sender: Sender) -> list[dict[str, Any]]:
    assert sender.flush(WAIT_S)
    sender.close(0)
    got = []
    while (message := service.next(RESULTS, 0)) is not None:
        got.append(message[1])
    return got


def numbers_of(results: list[dict[str, Any]]) -> list[int]:
    return [int(body["path"].rpartition("/")[2]) for body in results]


def test_the_order_is_kept_through_memory_and_disk(
    service: HostService, make: Make, tmp_path: Path
) -> None:
    sender = make(memory_bytes=2_000)
    post(sender, *range(40), padding="x" * 300)
    assert len(list(tmp_path.iterdir())) > 20
    assert not sender.flush(0.1)
    service.start()
    until(lambda: not sender._in_memory)  # memory has room again, but what lies on disk is older
    post(sender, *range(40, 60))
    assert numbers_of(delivered(service, sender)) == list(range(60))
    assert list(tmp_path.iterdir()) == []


def test_what_is_left_over_is_sent_by_the_next_and_a_damaged_file_stops_nothing(
    service: HostService, make: Make, tmp_path: Path
) -> None:
    sender = make()
    post(sender, 0, 1)
    sender.close(0)
    whole = Request("PUT", f"/attempts/{ATTEMPT}/results/9", packed({"rows": ["x" * 4000]}), "0")
    cut = replace(whole, content=whole.content[:-4], name="0-cut.request").write(tmp_path)
    assert cut.exists()
    (tmp_path / "0-damaged.request").write_text("{")
    (tmp_path / "0-half.part").write_text("{")
    following = make()
    post(following, 2)
    assert numbers_of(deliver(service, following)) == [0, 1, 2]
    assert list(tmp_path.iterdir()) == []


def test_a_full_memory_and_a_full_disk_make_the_worker_wait_and_lose_nothing(
    service: HostService, make: Make
) -> None:
    sender = make(memory_bytes=600, spool_bytes=600)
    sender.hurry()  # else the fourth would wait here
    post(sender, *range(6))
    assert numbers_of(deliver(service, sender)) == list(range(6))


@pytest.mark.parametrize("status", [400, 413, 422])
@pytest.mark.parametrize("on_disk", [False, True])
def test_a_refused_batch_becomes_errors_of_its_seeds(
    service: HostService, make: Make, tmp_path: Path, status: int, on_disk: bool
) -> None:
    service.refusals.append((RESULTS, status))
    sender = make(memory_bytes=1 if on_disk else 10_000)
    post(sender, 0, 1)
    first, second = deliver(service, sender)
    assert numbers_of([first, second]) == [0, 1]
    (row,) = first["rows"]
    assert (row["seed"], row["verdict"]) == (0, "error")
    assert "this can't be taken" in row["message"]
    assert second["rows"][0]["verdict"] == "pass"
    (refused_file,) = (tmp_path / "refused").iterdir()
    assert json.loads(refused_file.read_bytes().partition(b"\n")[0])["path"].endswith("/results/0")


def test_of_refused_requests_the_newest_are_kept_and_the_log_names_the_others(
    service: HostService, make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    service.refusals += [(RESULTS, 422), (RESULTS, 200)] * 4
    sender = make(refused_bytes=500)
    post(sender, *range(4))
    deliver(service, sender)
    heads = [file.read_bytes().partition(b"\n")[0] for file in (tmp_path / "refused").iterdir()]
    assert {json.loads(head)["path"][-1] for head in heads} == {"2", "3"}
    deleted = [record for record in caplog.records if "is deleted: refused" in record.message]
    assert len(deleted) == 2


def test_an_end_that_is_refused_twice_is_dropped(service: HostService, make: Make) -> None:
    service.refusals += [(FINISH, 422), (FINISH, 422)]
    sender = make()
    sender.post("POST", f"/attempts/{ATTEMPT}:finish", {"outcome": "done", "sent": [[0, 0]]})
    post(sender, 3)
    assert numbers_of(deliver(service, sender)) == [3]


@pytest.mark.parametrize(
    ("status", "over"),
    [(404, True), (409, True), (410, True)]
    + [(status, False) for status in (GARBLED, 401, 403, 408, 429, 500, 503)],
)
def test_what_is_over_is_dropped_and_told_and_what_passes_by_itself_is_sent_again(
    service: HostService, make: Make, status: int, over: bool
) -> None:
    service.refusals += [(RESULTS, status)] * (1 if over else 2)
    dropped_paths: list[str] = []
    sender = make(over=dropped_paths.append)
    post(sender, 0, 1)
    assert numbers_of(deliver(service, sender)) == ([1] if over else [0, 1])
    assert dropped_paths == [f"/attempts/{ATTEMPT}/results/0"] * over


@pytest.mark.parametrize(
    "wrong",
    [{"url": "https://[bad"}, {"url": "http://far"}, {"token": f"{TOKEN}\n"}, {"token": "ü"}],
)
def test_a_damaged_file_of_a_host_is_refused_and_its_token_is_not_shown(
    tmp_path: Path, wrong: dict[str, str]
) -> None:
    file = {"url": "https://service", "name": "lab-1", "token": TOKEN, **wrong}
    Host(**file).save(tmp_path)
    with pytest.raises(InfrastructureError, match="is damaged") as problem:
        load(tmp_path)
    assert TOKEN not in str(problem.value)

"""A worker's sender keeps every request, in order, while the service is away and through the end of
its process; what the service refuses is set aside, and its seeds become errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gonogo_workers.server.client import Server
from gonogo_workers.server.host_file import Host
from gonogo_workers.server.sender import Sender
from host_service import FINISH, RESULTS, TOKEN, HostService
from patience import WAIT_S
from running_service import until

ATTEMPT = "01234567-89ab-7def-8123-456789abcdef"


@pytest.fixture
def service() -> Iterator[HostService]:
    """A service that is away."""
    service = HostService()
    service.stop()
    yield service
    service.stop()


@pytest.fixture
def server(service: HostService) -> Iterator[Server]:
    """A host's client of it."""
    host = Host(service.url, "lab-1", TOKEN)
    server = Server(lambda: host, host.url, None)
    yield server
    server.close()


def post(sender: Sender, *numbers: int, **body: Any) -> None:
    for number in numbers:
        row = {"seed": number, "repeat": 0, "device": "lab-1/x:0", "verdict": "pass"}
        content = {"rows": [row], "columns": [], "artifacts": [], **body}
        sender.post("PUT", f"/attempts/{ATTEMPT}/results/{number}", content)


def sent(service: HostService) -> list[int]:
    numbers = []
    while (message := service.next(RESULTS, 0)) is not None:
        numbers.append(int(message[1]["path"].rpartition("/")[2]))
    return numbers


def test_the_order_is_kept_through_memory_and_disk(
    service: HostService, server: Server, tmp_path: Path
) -> None:
    sender = Sender(server, tmp_path, memory_bytes=2_000)
    post(sender, *range(40), padding="x" * 300)
    assert len(list(tmp_path.iterdir())) > 20
    assert not sender.flush(0.1)
    service.start()
    until(lambda: not sender._in_memory)  # memory has room again, but what lies on disk is older
    post(sender, *range(40, 60))
    assert sender.flush(WAIT_S)
    sender.close(0)
    assert sent(service) == list(range(60))
    assert list(tmp_path.iterdir()) == []


def test_what_is_left_over_is_sent_by_the_next_and_a_damaged_file_stops_nothing(
    service: HostService, server: Server, tmp_path: Path
) -> None:
    sender = Sender(server, tmp_path)
    post(sender, 0, 1)
    sender.close(0)
    (tmp_path / "0-damaged.request").write_text("{")
    service.start()
    following = Sender(server, tmp_path)
    post(following, 2)
    assert following.flush(WAIT_S)
    following.close(0)
    assert sent(service) == [0, 1, 2]
    assert list(tmp_path.iterdir()) == []


def test_a_full_memory_and_a_full_disk_make_the_worker_wait_and_lose_nothing(
    service: HostService, server: Server, tmp_path: Path
) -> None:
    sender = Sender(server, tmp_path, memory_bytes=600, spool_bytes=600)
    sender.hurry()  # else the fourth would wait here
    post(sender, *range(6))
    service.start()
    assert sender.flush(WAIT_S)
    sender.close(0)
    assert sent(service) == list(range(6))


@pytest.mark.parametrize("status", [400, 413, 422])
@pytest.mark.parametrize("on_disk", [False, True])
def test_a_refused_batch_becomes_errors_of_its_seeds(
    service: HostService, server: Server, tmp_path: Path, status: int, on_disk: bool
) -> None:
    service.refusals.append((RESULTS, status))
    sender = Sender(server, tmp_path, memory_bytes=1 if on_disk else 10_000)
    post(sender, 0, 1)
    service.start()
    assert sender.flush(WAIT_S)
    sender.close(0)
    [(_, first), (_, second)] = [service.next(RESULTS, 0) or ("", {}) for _ in range(2)]
    assert [first["path"][-1], second["path"][-1]] == ["0", "1"]
    [row] = first["rows"]
    assert (row["seed"], row["verdict"]) == (0, "error")
    assert "this can't be taken" in row["message"]
    assert second["rows"][0]["verdict"] == "pass"
    [refused_file] = (tmp_path / "refused").iterdir()
    assert json.loads(refused_file.read_bytes().partition(b"\n")[0])["path"].endswith("/results/0")


def test_of_refused_requests_the_newest_are_kept_and_the_log_names_the_others(
    service: HostService, server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    service.refusals += [(RESULTS, 422), (RESULTS, 200)] * 4
    sender = Sender(server, tmp_path, refused_bytes=500)
    post(sender, *range(4))
    service.start()
    assert sender.flush(WAIT_S)
    sender.close(0)
    heads = [file.read_bytes().partition(b"\n")[0] for file in (tmp_path / "refused").iterdir()]
    assert {json.loads(head)["path"][-1] for head in heads} == {"2", "3"}
    deleted = [record for record in caplog.records if "is deleted: refused" in record.message]
    assert len(deleted) == 2


def test_an_end_that_is_refused_twice_is_dropped(
    service: HostService, server: Server, tmp_path: Path
) -> None:
    service.refusals += [(FINISH, 422), (FINISH, 422)]
    sender = Sender(server, tmp_path)
    sender.post("POST", f"/attempts/{ATTEMPT}:finish", {"outcome": "done", "sent": [[0, 0]]})
    post(sender, 3)
    service.start()
    assert sender.flush(WAIT_S)
    sender.close(0)
    assert sent(service) == [3]


@pytest.mark.parametrize("status", [404, 409, 410])
def test_what_is_over_is_dropped_and_the_attempt_is_told(
    service: HostService, server: Server, tmp_path: Path, status: int
) -> None:
    service.refusals.append((RESULTS, status))
    dropped_paths: list[str] = []
    sender = Sender(server, tmp_path, over=dropped_paths.append)
    post(sender, 0, 1)
    service.start()
    assert sender.flush(WAIT_S)
    sender.close(0)
    assert sent(service) == [1]
    assert dropped_paths == [f"/attempts/{ATTEMPT}/results/0"]


@pytest.mark.parametrize("status", [401, 403, 408, 429, 500, 503])
def test_what_passes_by_itself_is_sent_again(
    service: HostService, server: Server, tmp_path: Path, status: int
) -> None:
    service.refusals += [(RESULTS, status)] * 2
    sender = Sender(server, tmp_path)
    post(sender, 0, 1)
    service.start()
    assert sender.flush(WAIT_S)
    sender.close(0)
    assert sent(service) == [0, 1]

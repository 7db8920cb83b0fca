"""Kernels that misbehave, through the whole service: each gets its verdict, the other seeds
still run, no process is left.

tests/integration/workers has more of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from patience import scaled
from running_service import Service, every_seed_once, family, submit, until
from servers import RedisServer

SEEDS = 6
FLAGS = {"hang": ("hangs", "hung"), "crash": ("crashes", "crashed")}
TARGET = {"executor": "troublesome", "arch": "wormhole", "board": "n150"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, redis_server: RedisServer) -> Iterator[Service]:
    """Yield one service for all kernels: a bad one must not spoil the next."""
    folder = tmp_path_factory.mktemp("kernels")
    service = Service(
        folder,
        f"sqlite:///{folder / 'gonogo.sqlite'}",
        redis_server.url,
        GONOGO_EXECUTORS="troublesome=troublesome:Troublesome",
        GONOGO_PER_SEED_DEADLINE_S=str(scaled(1.5)),
    )
    service.workers.clear()
    try:
        service.add_worker("troublesome")
        service.start_all_but_workers()
        yield service
    finally:
        service.close()


@pytest.mark.parametrize(
    ("build", "verdict"), [("hang", "hang"), ("crash", "crash"), ("nan", "fail")]
)
def test_a_kernel_that_misbehaves_on_some_seeds_spoils_only_those(
    place: Service, build: str, verdict: str
) -> None:
    with place.client() as client:
        job = submit(client, SEEDS, build=f"{build}-sometimes", target=TARGET)
        ended = client.wait(job)
        assert ended["state"] == "finished", f"{ended}\n{place.logs()}"
        items = every_seed_once(client, job, range(SEEDS))
        verdicts = {item["seed"]: item["verdict"] for item in items}
        assert set(verdicts.values()) == {verdict, "pass"}, (
            f"{verdicts}\n{[item.get('message') for item in items]}\n{place.logs()}"
        )
        assert ended["verdict"] == verdict
        for item in items:
            if verdict in {"hang", "crash", "error"} and item["verdict"] == verdict:
                assert item["outputs"] == {}
                assert item["message"]
        if verdict in FLAGS:
            kind, past = FLAGS[verdict]
            flags = until(
                lambda: client.call("GET", "/flags", kind=kind, job=job)["items"], what=place.logs
            )
            flag = client.call("GET", f"/flags/{flags[0]['id']}")
            lost = sum(item["verdict"] == verdict for item in items)
            assert f"{lost} of {SEEDS} " in flag["evidence"]["words"]
            assert f" runs {past}" in flag["evidence"]["words"]


def test_afterwards_only_the_worker_and_its_ready_children_live(place: Service) -> None:
    with place.client() as client:
        job = submit(client, 2, build="fine", target=TARGET)
        assert client.wait(job)["verdict"] == "pass"
    until(
        lambda: len(family(place.workers[0].pid)) <= 3,
        what=lambda: f"no more than a host or two: {family(place.workers[0].pid)}",
    )

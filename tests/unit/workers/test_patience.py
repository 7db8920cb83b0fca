"""How long a command waits for a child, and what it says meanwhile."""

from __future__ import annotations

import pytest

from gonogo.judging.inputs import generate, quantise
from gonogo.spec.test_spec import TestSpec
from gonogo_workers.executors.base import KernelHang
from gonogo_workers.local import child
from gonogo_workers.local.child import Patience
from gonogo_workers.local.runner import load

TEST = TestSpec.parse({"kernel": "layernorm_fw", "shape": [4, 64]})


@pytest.mark.parametrize(
    ("executor", "elements", "limits"),
    [
        ("emulator", 32 * 64, (150.0, 30.0)),
        ("torch", 10**8, (320.06, 200.06)),
        ("ttnn", 32 * 64, (600.0, 600.0)),
        ("mine", 32 * 64, (600.0, 600.0)),
        ("pytest", None, (600.0, 600.0)),
    ],
)
def test_the_limit_of_a_run_follows_its_size(
    executor: str, elements: int | None, limits: tuple[float, float]
) -> None:
    most, given = Patience(None, 600.0), Patience(7.0, 600.0)
    for is_first, limit_s in zip((True, False), limits, strict=True):
        assert most.limit_s(executor, elements, is_first=is_first) == pytest.approx(limit_s)
        assert given.limit_s(executor, elements, is_first=is_first) == 7.0


def test_a_run_that_takes_long_is_told_with_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "TELL_AFTER_S", 0.0)
    messages: list[str] = []
    with (
        load("emulator", "hang", deadline_s=2.0, tell=messages.append) as runner,
        pytest.raises(KernelHang),
    ):
        runner.run(TEST, quantise(TEST, generate(TEST, 3)), seed=3)
    assert messages == ["waiting for seed 3 of build hang: it is a hang after 2 s (--deadline)"]

"""The golden digest: how it is learned, confirmed and replaced, and which devices it accuses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import permutations

from gonogo.devices.golden import Accusation, CanaryResult, DigestChange, Golden, judge

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
KNOWN = Golden("x", "lab-1/a", "lab-1/b")


def canary(device: str, digest: str, since: int = 0, at: int | None = None) -> CanaryResult:
    """Return a device's canary result; `since` and `at` are minutes after NOW."""
    times = (NOW + timedelta(minutes=n) for n in (since, since if at is None else at))
    return CanaryResult(f"lab-1/{device}", digest, *times)


def test_a_deviating_device_is_accused_once_another_of_its_host_gives_the_golden_digest() -> None:
    before = judge(KNOWN, [canary("a", "x", 0, 9), canary("b", "y", 10)])
    assert (before.accused, before.change) == ((), None)
    after = judge(KNOWN, [canary("a", "x", 0, 11), canary("b", "y", 10)])
    assert after.accused == (Accusation("lab-1/b", "lab-1/a"),)
    assert after.excused == {"lab-1/a"}
    assert after.golden == KNOWN
    assert "lab-1/a on the same host" in after.accused[0].words


def test_the_only_device_of_a_host_is_never_accused() -> None:
    alone = canary("a", "y", 10, 20)
    for golden in (None, KNOWN, Golden("z", "lab-1/b"), Golden("z", "lab-1/b", "lab-1/c")):
        assert judge(golden, [alone]).accused == ()


def test_an_unconfirmed_digest_accuses_nobody_and_two_that_agree_settle_it() -> None:
    first = Golden("x", "lab-1/a")
    undecided = judge(first, [canary("a", "x", 0, 9), canary("b", "y", 5, 6)])
    assert (undecided.golden, undecided.change, undecided.accused) == (first, None, ())
    two = [canary("b", "y", 5, 9), canary("c", "y", 8, 20)]
    settled = judge(first, [canary("a", "x", 0, 9), *two])
    assert (settled.golden, settled.change) == (
        Golden("y", "lab-1/b", "lab-1/c"),
        DigestChange.replaced,
    )
    assert settled.accused == (Accusation("lab-1/a", "lab-1/b"),)


def test_a_change_on_all_devices_is_a_new_golden_and_half_of_it_accuses_nobody() -> None:
    half = judge(KNOWN, [canary("a", "y", 10), canary("b", "y", 12), canary("c", "x", 0, 13)])
    assert (half.golden, half.accused) == (KNOWN, ())
    assert half.excused == {"lab-1/a", "lab-1/b", "lab-1/c"}
    whole = judge(KNOWN, [canary("a", "y", 10), canary("b", "y", 12), canary("c", "y", 14)])
    new = Golden("y", "lab-1/a", "lab-1/b")
    assert (whole.golden, whole.change, whole.accused) == (new, DigestChange.replaced, ())


def test_one_device_never_overrules_two() -> None:
    assert judge(KNOWN, [canary("a", "y", 10)]).golden == KNOWN
    assert judge(Golden("x", "lab-1/a"), [canary("a", "y", 10)]).golden == Golden("y", "lab-1/a")


def test_the_order_of_the_canaries_doesn_t_matter() -> None:
    agreeing = [canary("a", "x", 0, 20), canary("b", "x", 1, 20)]
    canaries = [*agreeing, canary("c", "y", 10), canary("d", "z", 11)]
    (judged,) = {judge(None, order) for order in permutations(canaries)}
    assert [accusation.device for accusation in judged.accused] == ["lab-1/c", "lab-1/d"]

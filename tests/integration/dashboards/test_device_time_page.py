"""The seconds a seed of a kernel on its device, on the page of its test."""

from __future__ import annotations

import nightly_history
from api import Api
from gonogo import urls


def test_a_tests_page_shows_its_seconds_a_seed_by_build_and_since_when_they_are_longer(
    api: Api,
) -> None:
    with api.context.session() as session:
        for night in range(8):
            seconds = 2e-3 if night < 5 else 3e-3
            key = nightly_history.night(
                session,
                f"b{night}",
                night,
                range(10),
                bits="same",
                kernel_s=seconds * (1 + night * 3 % 8 / 400),
            ).test_key
        nightly_history.night(session, "unmeasured", 9, range(10), bits="same")
    times = api.client.get(urls.history(key, as_json=True)).json()["times"]
    assert [point["build"] for point in times["points"]] == [f"b{night}" for night in range(8)]
    first = times["points"][0]["time"]
    assert first["low"] < 2e-3 < first["high"]
    (change,) = times["changes"]["changes"]
    assert (change["at"], times["last"]["low"] < 1) == ("b5", True)
    page = api.client.get(urls.history(key)).text
    assert "<bdi>b7</bdi> takes 3.04 ms (2.7 ms to 3.41 ms) a seed; against <bdi>b6</bdi>" in page
    assert "times larger from b5 on" in page

"""My branch beside main's last builds: from a build, a run or a commit, on its page and as JSON."""

from __future__ import annotations

import re

import pytest

import compared_builds
import nightly_history
from api import Api
from compared_builds import BRANCH_BUILD, COMMIT, EIGHT, LAST
from gonogo import urls
from gonogo_service.compare import comparing


def test_a_branch_shows_what_differs_from_main_first_and_folds_what_is_the_same(api: Api) -> None:
    with api.context.session() as session:
        names = {key: story for story, key in compared_builds.branch(session).items()}
        nightly_history.night(session, "main-4", 4, EIGHT)  # it ran another test only
    view = api.client.get(urls.branch({"head": COMMIT}, as_json=True)).json()
    assert (view["builds"], view["branch"], view["beside"]) == (
        [BRANCH_BUILD],
        "main",
        [*LAST[1:], "main-4"],
    )
    assert view["equal"] == {"same": 2, "alike": 1, "absent": 2}
    lines = {names[urls_key(line["url"])]: line for line in view["items"]}
    assert list(lines) == ["worse", "hung", "slower", "same error", "faster", "other bits"]
    assert {
        story: [cell["label"] for cell in line["cells"] if cell["build"]]
        for story, line in lines.items()
    } == {
        "worse": ["worse"] * 2,
        "hung": ["same bits"] * 2,
        "same error": ["same error"] * 2,
        "slower": ["same bits"] * 2,
        "faster": ["same bits"] * 2,
        "other bits": ["other bits, right"] * 2,
    }
    assert {
        story: [finding["kind"] for finding in line["findings"]] for story, line in lines.items()
    } == {
        "worse": ["new_failure"],
        "hung": ["infrastructure"],
        "same error": ["broken_on_base"],
        "slower": ["slower"],
        "faster": [],
        "other bits": [],
    }
    assert lines["slower"]["findings"][0]["words"].startswith(
        "2.6 ms a seed, before 2 ms: 1.3 times"
    )
    assert lines["faster"]["faster"].startswith("1.5 ms a seed, before 2 ms: 0.75 times (99.9%: 0.")
    assert lines["slower"]["check"] == ""  # a check compares bits, and these are the same
    assert "--build mine-4c1e" in lines["worse"]["check"]
    assert "--reference-build main-3 " in lines["other bits"]["check"]
    page = api.client.get(urls.branch({"head": BRANCH_BUILD})).text
    text = " ".join(re.sub(r"<[^>]+>", " ", page).split())
    assert "2 tests are the same to the bit, on 16 common seeds." in text
    assert "1 test has nothing new, and no common seed to compare." in text
    assert "6 tests differ from main" in text
    (pick,) = api.client.get(urls.branch(as_json=True)).json()["picks"]
    assert (pick["name"], pick["branch"], pick["commit"]) == (BRANCH_BUILD, "fast-ln", COMMIT)
    results = api.client.get(urls.search(COMMIT[:7], as_json=True)).json()["items"]
    assert urls.branch({"head": BRANCH_BUILD}) in [item["url"] for item in results]


def urls_key(url: str) -> str:
    """Return the key of a test's page."""
    return url.removeprefix(f"{urls.TESTS}/").partition("?")[0]


def test_a_branch_without_a_main_build_before_it_and_an_unknown_one_say_so(api: Api) -> None:
    with api.context.session() as session:
        nightly_history.night(session, "only", 1, EIGHT)
    assert "No earlier build ran" in api.client.get(urls.branch({"head": "only"})).text
    for wrong in ({"head": "nothing"}, {"head": "only", "branch": "mian"}):
        assert api.client.get(urls.branch(wrong)).status_code == 422


def test_builds_are_compared_on_the_seeds_of_both_in_whatever_order_they_came(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparing, "MAX_SEEDS", 4)
    monkeypatch.setattr(comparing, "MIN_SEEDS", 4)
    with api.context.session() as session:
        for build, sequence, seeds in (("before", 1, EIGHT), ("after", 2, reversed(EIGHT))):
            nightly_history.night(session, build, sequence, seeds, bits="same")
    view = api.client.get(urls.branch({"head": "after"}, as_json=True)).json()
    assert "on 4 common seeds" in view["summary"][1]

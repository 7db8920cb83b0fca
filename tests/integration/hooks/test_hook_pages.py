"""The pages of incoming deliveries and of rules: each delivery's outcome, reason and runs, and its
replay."""

from __future__ import annotations

import re

from api import Api
from gonogo_service.ci import incoming
from gonogo_service.kit.database.states import HookSource
from hook_payloads import HEAD, REPOSITORY, deliver, pull_request, push
from hook_service import came, commit_checks, handled, store_rule, work

HOSTILE = "<img src=x onerror=alert(1)>"
LEAKED = "ghp_leaked_by_an_alert"


def test_a_delivery_leads_to_its_runs_and_they_lead_back(lite: Api) -> None:
    store_rule(lite, name="kernels")
    store_rule(lite, name="other", branches=["release/*"])
    deliver(lite.client, "push", push(note=HOSTILE), delivery="first")
    handled(lite, "issues", {"action": HOSTILE, "repository": {"full_name": "lab/notes"}})
    ignored, started = lite.client.get("/hooks.json").json()["items"]
    listed = lite.client.get("/hooks").text
    for words in ("Started something", "rule kernels", "GitHub"):
        assert words in listed
    assert "nothing follows from the event 'issues'" in ignored["reason"]
    for query, expected in (
        ({"state": "ignored"}, [ignored]),
        ({"event": "push", "source": "github"}, [started]),
        ({"repository": REPOSITORY}, [started]),
        ({"event": "no-such"}, []),
        ({"state": "no-such"}, [ignored, started]),
    ):
        listed = lite.client.get("/hooks.json", params=query).json()["items"]
        assert [delivery["id"] for delivery in listed] == [delivery["id"] for delivery in expected]
    address = f"/hooks/{started['id']}"
    view = lite.client.get(address + ".json").json()
    kernels, other = view["hook"]["outcome"]
    assert not other["started"]
    assert other["reason"] == "the branch 'main' fits none of its patterns"
    (check,) = (view["checks"][id_] for id_ in kernels["commit_checks"])
    page, run_page = (lite.client.get(path).text for path in (address, f"/runs/{check['run']}"))
    for link in (f"/runs/{check['run']}", f"/runs/{check['base_run']}"):
        assert f'href="{link}"' in page
        assert f'href="{address}"' in lite.client.get(link).text
    (job,) = set(re.findall('href="(/jobs/[^"/?]+)"', run_page)) - {"/jobs/new"}
    assert (
        f'<a href="{address}">push to {REPOSITORY}, rule kernels</a>' in lite.client.get(job).text
    )
    for path in ("/hooks", address, f"/hooks/{ignored['id']}"):
        assert HOSTILE not in lite.client.get(path).text
    assert "onerror" in page  # it is there, as text
    assert "data-post" not in page  # a delivery that started something can't be replayed


def test_what_started_nothing_is_worked_off_again_from_its_page(lite: Api) -> None:
    url = f"https://x.example/a?token={LEAKED}"
    head_commit = {"secret": LEAKED, "tokens": [LEAKED], "url": url}
    handled(lite, "push", push(head_commit=head_commit))
    (line,) = came(lite)
    admin, csrf = lite.browser("admin")
    page = admin.get(f"/hooks/{line['id']}").text
    view = admin.get(f"/hooks/{line['id']}.json").json()
    assert f'data-post="{view["replay"]}"' in page
    assert f"no rule is for push of {REPOSITORY}" in page
    assert HEAD in view["payload"]
    shown = admin.get(f"/api/v1/hooks/deliveries/{line['id']}").text
    assert LEAKED not in page + view["payload"] + shown
    assert admin.post(view["replay"], json={}).status_code == 403  # the page's token is missing
    store_rule(lite)
    assert admin.post(view["replay"], json={}, headers=csrf).status_code == 202
    assert lite.get("/audit?action=hook.replayed")["items"][0]["subject"] == line["id"]
    assert "Waiting" in admin.get(f"/hooks/{line['id']}").text
    assert work(lite) == 1
    assert len(commit_checks(lite)) == 1
    reader, _ = lite.browser("read")
    for path in (f"/hooks/{line['id']}", f"/hooks/{line['id']}.json"):
        response = reader.get(path)
        assert response.status_code == 200
        assert ("scope admin" in response.text, "head_commit" in response.text) == (True, False)
    assert admin.get("/hooks/x").status_code == admin.get("/hooks/x.json").status_code == 404
    assert admin.get("/hooks?cursor=x").status_code == 400


def test_rules_are_a_table_of_what_starts_what_and_empty_lists_say_what_is_missing(
    lite: Api,
) -> None:
    empty = {
        "/hooks": "No incoming webhooks yet",
        "/rules": "No rules yet",
        "/hooks?event=x": "No incoming webhook matches",
    }
    for path, message in empty.items():
        assert message in lite.client.get(path).text
    store_rule(
        lite, description=HOSTILE, branches=["main", "!wip/**"], paths=["ttnn/**"], forks=True
    )
    store_rule(lite, name="off", enabled=False, repositories=[REPOSITORY], base=False)
    page = lite.client.get("/rules").text
    assert HOSTILE not in page
    for phrase in (
        "main, !wip/**",
        "forks included: their code runs here",
        "Disabled",
        "the base doesn't run",
        "tt-train-2025",
    ):
        assert phrase in page
    # only a rule about one repository leads to what came from it
    assert page.count('href="/hooks?repository=') == 1
    assert 'href="/hooks?repository=lab%2Fkernels"' in page
    assert lite.client.get("/rules.json?limit=1").json()["next_url"] == "/rules?cursor=kernels"


def test_a_payload_that_is_no_json_or_too_large_is_no_trouble(lite: Api) -> None:
    assert deliver(lite.client, "ping", b"\xff<script>").status_code == 400
    with lite.context.session() as session:  # one that an older version took
        incoming.store(session, HookSource.github, "old", "ping", b"\xff<script>")
    deliver(lite.client, "push", push(padding="x" * 70_000))
    deliver(lite.client, "pull_request", push(padding="x" * (2 * 2**20)))
    handled(lite, "pull_request", pull_request())
    raw, long, larger, _ = came(lite)
    page = lite.client.get(f"/hooks/{raw['id']}").text
    assert "Not JSON" in page
    assert "&lt;script&gt;" in page
    assert "The first 64,000 of" in lite.client.get(f"/hooks/{long['id']}").text
    assert "Too large for a page" in lite.client.get(f"/hooks/{larger['id']}").text

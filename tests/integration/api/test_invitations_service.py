"""Invitations of hosts over HTTP and on the page of devices: listed, and taken back by an admin."""

from __future__ import annotations

from api import in_process


def test_an_open_invitation_is_shown_and_only_an_admin_takes_it_back(
    migrated_sqlite_url: str,
) -> None:
    with in_process(migrated_sqlite_url) as api:
        body = {"name": "lab-<1>", "queues": ["ttnn.wormhole.*"]}
        assert api.client.post("/api/v1/hosts:invite", json=body).status_code == 422
        issued = api.client.post("/api/v1/hosts:invite", json=body | {"name": "lab-1"}).json()
        (listed,) = api.get("/invitations")["items"]
        assert (listed["id"], listed["state"]) == (issued["id"], "open")
        assert (listed["name"], listed["queues"]) == ("lab-1", ["ttnn.wormhole.*"])
        assert issued["code"] not in str(listed)
        path = f"/api/v1/invitations/{issued['id']}"
        page = api.client.get("/devices").text
        assert f'data-post="{path}:revoke"' in page
        assert issued["code"] not in page
        visitor, read, submit = api.visitor(), api.token("read"), api.token("submit")
        assert visitor.get("/api/v1/invitations", headers=read).status_code == 200
        assert visitor.post(f"{path}:revoke", json={}, headers=submit).status_code == 403
        revoked = api.client.post(f"{path}:revoke", json={"reason": "leaked"}).json()
        assert revoked["state"] == "revoked"
        again = api.client.post(f"{path}:revoke", json={}).json()
        assert again["revoked_at"] == revoked["revoked_at"], "the second time changes nothing"
        assert api.get("/invitations")["items"] == []
        assert api.get("/invitations?state=any")["items"] == [revoked]
        assert "data-post" not in api.client.get("/devices").text
        (entry,) = api.get("/audit?action=host.invitation_revoked")["items"]
        assert entry["detail"] == {"invitation": issued["id"], "reason": "leaked"}
        assert api.client.post("/api/v1/invitations/no:revoke", json={}).status_code == 404

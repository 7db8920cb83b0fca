"""The routes of the flags' pages, each with its JSON version.

They only read: the API changes flags.
"""

from __future__ import annotations

from datetime import datetime

from fastapi import Request
from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.flags import flag_list, flag_page
from gonogo_dashboards.kit.navigation import Entry
from gonogo_dashboards.kit.site import Site

NAVIGATION = (Entry("flags", "Flags", urls.FLAGS, "Results", 3, ("flag",)),)


def add(site: Site) -> None:
    """Add the list of flags, and the page of one."""

    def flag(session: Session, request: Request, now: datetime) -> flag_page.FlagView | None:
        return flag_page.one(session, request.path_params["name"], now)

    site.add_list(
        urls.FLAGS,
        "flags/flags.html",
        flag_page.FLAG_LINE,
        flag_list.listed,
        "Which findings are open?",
    )
    site.add(
        urls.FLAGS + "/{name}",
        "flags/flag.html",
        flag,
        "What was found, on which build, and what is to do?",
        noun="flag",
    )

"""The routes of the forms; they only read, and the API creates."""

from __future__ import annotations

from datetime import datetime
from functools import partial

from fastapi import Request
from sqlalchemy.orm import Session

from gonogo_dashboards.forms.creation_form import FORMS, CreationForm, creation_form
from gonogo_dashboards.kit.site import Site


def add(site: Site) -> None:
    """Add each form."""

    def read(noun: str, session: Session, request: Request, now: datetime) -> CreationForm:
        return creation_form(noun, session, request.query_params, now)

    for noun, form in FORMS.items():
        site.add(
            f"/{noun}s/new",
            "forms/creation_form.html",
            partial(read, noun),
            "Create one, by a form",
            noun="form",
            scope=form["scope"],
        )

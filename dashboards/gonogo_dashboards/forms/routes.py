"""The routes of the forms; they only read, and the API creates."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

from fastapi import Request
from sqlalchemy.orm import Session

from gonogo_dashboards.forms.creation_form import FORMS, CreationForm
from gonogo_dashboards.kit.site import Site


def add(site: Site) -> None:
    """Add each form."""

    def read(form: Any, session: Session, request: Request, now: datetime) -> CreationForm:
        filled: CreationForm = form(session, request.query_params, now)
        return filled

    for path, (form, scope) in FORMS.items():
        site.add(
            path,
            "forms/creation_form.html",
            partial(read, form),
            "Create one, by a form",
            noun="form",
            scope=scope,
        )

"""Login and logout of the pages: exchange a token for a session cookie, and end the session."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import RedirectResponse

from gonogo_dashboards.pages import login_page
from gonogo_service.edge import check_csrf
from gonogo_service.kit.answers import principal_of
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.problems import Problem
from gonogo_service.people import auth
from gonogo_service.people.context import Ctx
from gonogo_service.people.failures import FailureLimits
from gonogo_service.people.visit import Visit

router = APIRouter(include_in_schema=False)
MAX_TOKEN = 200
MAX_NEXT = 2000


@router.get("/login")
def show_form(next: str = "/") -> Response:
    """Show the login form."""
    return login_page(next_url=_local_path(next))


@router.post("/login")
def login(
    context: Ctx,
    request: Request,
    token: Annotated[str, Form(max_length=MAX_TOKEN)],
    next: Annotated[str, Form(max_length=MAX_NEXT)] = "/",
) -> Response:
    """Set the session cookie and redirect to `next`.

    An invalid token shows the form again, with status 401.
    """
    visit, limits = _visit(request)
    login = auth.login(context, token)
    if isinstance(login, auth.Refusal):
        limits.refused("login", visit.client, login)
        return login_page(next_url=_local_path(next), error=login.detail, status=401)
    cookie, ends = login
    response = RedirectResponse(_local_path(next), status_code=303)
    life = max(1, int((ends - utcnow()).total_seconds()))
    response.set_cookie(
        visit.cookie_name,
        cookie,
        max_age=life,
        path="/",
        secure=visit.secure,
        httponly=True,
        samesite="strict",
    )
    return response


@router.post("/logout")
def logout(
    context: Ctx, request: Request, csrf_token: Annotated[str, Form(max_length=MAX_TOKEN)] = ""
) -> Response:
    """End the session. A form can't send headers, so the CSRF token is one of its fields."""
    visit, _ = _visit(request)
    principal = principal_of(request)
    if principal is None or principal.kind != "session":
        raise Problem(409, "There is no login to end.", slug="no-session")
    check_csrf(principal, csrf_token)
    auth.logout(context, principal, visit.cookie())
    response = RedirectResponse("/login", status_code=303)
    response.delete_cookie(
        visit.cookie_name, path="/", secure=visit.secure, httponly=True, samesite="strict"
    )
    return response


def _visit(request: Request) -> tuple[Visit, FailureLimits]:
    return request.state.visit, request.state.limits


def _local_path(target: str) -> str:
    """Return `target` if it is a path of this service, else "/".

    A login must not redirect to another site.
    """
    is_local = (
        target.startswith("/")
        and not target.startswith("//")
        and "\\" not in target
        and target.isprintable()
    )
    return target if is_local else "/"

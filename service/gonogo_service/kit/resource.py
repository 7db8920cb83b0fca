"""`Resource`: the API of a noun from one declaration.

It lists (filters, a cursor, CSV), shows, creates, changes and removes a row of one table, checks
what a form is about to send (`:validate`), and writes the audit. Functions of the noun say what is
special about a verb:

    TOKENS = Resource(noun.TOKENS, TokenRow)

    @TOKENS.on_remove
    def revoke(act: Act, token: TokenRow) -> dict[str, Any]: ...

What is no verb of these stays a function on `TOKENS.router`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from inspect import Parameter
from typing import Annotated, Any, ClassVar, Generic, Literal, Protocol, get_type_hints

from fastapi import Depends, Query, Request, Response
from pydantic import BaseModel
from sqlalchemy.orm import Session

from gonogo.cli.kit.noun import Noun, Verb
from gonogo.urls import API
from gonogo_service.kit import audit, idempotency, rows
from gonogo_service.kit.answers import Cursor, Filter, Limit, caller, make_router
from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.paging import Page
from gonogo_service.kit.listing import Listing, R
from gonogo_service.kit.principals import Principal
from gonogo_service.kit.problems import BadField


class Context(Protocol):
    """The sessions and other means of the app that a resource needs."""

    def session(self) -> AbstractContextManager[Session]:
        """Open a write transaction."""

    def reading(self) -> AbstractContextManager[Session]:
        """Open a read transaction."""


async def _context(request: Request) -> Any:
    return request.app.state.context


_CONTEXT = Annotated[Any, Depends(_context)]
_SCOPES = {
    scope: Annotated[Principal, Depends(caller(scope))] for scope in ("read", "submit", "admin")
}
_ENDS = ("archived_at", "revoked_at", "ended_at")
"""Times of what has ended, and is stored still."""
NEXT = "GoNoGo-Next"
"""The header of a list as CSV that has the cursor of the next page."""
CSV: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/csv": {"schema": {"type": "string"}}}}
}
Format = Annotated[
    Literal["json", "csv"], Query(description="csv: a column per field; GoNoGo-Next has the cursor")
]


Show = Callable[[Any, Session, R], Any]
"""Returns the values of an answer of the context, a session, and the row."""


@dataclass(frozen=True)
class Act:
    """A change that someone makes, in one transaction with its audit entry."""

    context: Any
    """The app's people.context.Context"""
    session: Session
    who: Principal

    def audit(self, action: str, subject: str, detail: Mapping[str, Any] | None = None) -> None:
        """Write that it was done."""
        audit.record(
            self.session,
            actor=self.who.actor,
            action=action,
            subject=subject,
            detail=None if detail is None else dict(detail),
        )


@dataclass(frozen=True)
class Same(Generic[R]):
    """The row that was there already: nothing was created, and the answer is 200."""

    row: R


@dataclass(frozen=True)
class Checked:
    """The answer where every check passed; nothing was created."""

    valid: bool


class _RolledBack(Exception):
    """Ends a transaction that must leave nothing."""


@contextmanager
def undone(context: Context) -> Iterator[Session]:
    """Open a write transaction that is rolled back at its end."""
    try:
        with context.session() as session:
            yield session
            session.flush()
            raise _RolledBack
    except _RolledBack:
        pass


class Resource(Listing[R]):
    """A noun of the API, and the table of its rows; `registered` lists all resources."""

    registered: ClassVar[list[Resource[Any]]] = []

    def __init__(
        self,
        noun: Noun,
        row: type[R],
        *,
        answer: type[BaseModel] | None = None,
        line: type[BaseModel] | None = None,
        show: Show[R] | None = None,
        show_line: Show[R] | None = None,
        audited: tuple[str, ...] = (),
        has_one: bool = True,
        tag: str = "",
        **listing: Any,
    ) -> None:
        """Make the routes of the list and of one.

        answer, line: the answer about one, and about one in a list; default: the row's columns.
        show, show_line: return the values of these; default: the row. audited: the attributes that
        the entry about a new one has; default: the fields that were given. has_one: False where
        only the list has an address. listing: the options of Listing.
        """
        super().__init__(noun, row, **listing)
        self.router = make_router(tag or noun.name)
        self.answer = answer or rows.answer_of(row)
        self.line = line or self.answer
        self._show = show or _the_row
        self._show_line = show_line or (self._show if line is None else _the_row)
        self._audited, self.has_one = audited, has_one
        Resource.registered.append(self)
        self._add_list()
        if has_one:
            self._add_show()

    def _add_list(self) -> None:
        noun = self.noun

        def list_(
            context: Context, limit: int, cursor: str | None, format: str, **filters: Any
        ) -> Any:
            filters.pop("_who")
            with context.reading() as session:
                page = self.page(session, limit=limit, cursor=cursor, **filters)
                items = [
                    _read(self.line, self._show_line(context, session, row)) for row in page.items
                ]
            if format == "json":
                return {"items": items, "next": page.next}
            headers = {} if page.next is None else {NEXT: page.next}
            text = rows.as_csv(self.line, items)
            return Response(text, media_type="text/csv; charset=utf-8", headers=headers)

        filters = {name: _query(noun.kinds.get(name), text) for name, text in noun.filters.items()}
        paging = {"limit": (Limit, 50), "cursor": (Cursor, None), "format": (Format, "json")}
        verb = Verb("listed", f"List {noun.several}, {self.order}", scope=noun.scope)
        doc = f"List {noun.several} that match all filters."
        model: Any = Page[self.line]  # type: ignore[name-defined]
        self._route("GET", "", list_, verb, doc, model, {**filters, **paging}, responses=CSV)

    @property
    def order(self) -> str:
        """Return the order of the list, in words."""
        return "newest first" if self.by_id else "by name"

    def _add_show(self) -> None:
        def show(context: Context, _who: Principal, **path: str) -> Any:
            (key,) = path.values()
            with context.reading() as session:
                row = self.find(key) or self.require(session, _who, key)
                return _read(self.answer, self._show(context, session, row))

        verb = Verb("shown", f"Show {self.noun.words}", scope=self.noun.scope)
        self._route("GET", self._one, show, verb)

    def on_create(
        self,
        function: Callable[[Act, Any], R | Same[R]],
        accepted: Callable[[R], Any] | None = None,
    ) -> Callable[[Act, Any], R | Same[R]]:
        """Add the POST, and its `:validate`. The function makes the row of a body.

        It returns `Same` for a row that was there already. accepted: returns the answer (202) about
        work that has only begun, whose address is `links.self`.
        """
        verb = _given(self.noun.create)
        body_of = {"body": (get_type_hints(function)["body"], Parameter.empty)}

        def create(
            context: Context, _who: Principal, body: BaseModel, request: Request, key: str | None
        ) -> Any:
            def make(session: Session) -> idempotency.Answer:
                act = Act(context, session, _who)
                outcome = function(act, body)
                row = outcome.row if isinstance(outcome, Same) else outcome
                session.flush()
                if row is outcome:
                    detail = {name: getattr(row, name) for name in self._audited}
                    self._audit(act, verb, row, detail or _sent(body))
                if accepted is not None:
                    begun = accepted(row)
                    return 202, begun, {"Location": begun.links.self}
                shown = self.answer.model_validate(self._show(context, session, row))
                content = shown.model_dump(mode="json", by_alias=True)
                address = f"{API}{self.noun.address}/{self.key_of(row)}"
                return 201 if row is outcome else 200, content, {"Location": address}

            return idempotency.once(context, request, _who, key, _sent(body), make)

        def validate(context: Context, _who: Principal, body: BaseModel) -> Checked:
            with undone(context) as session:
                function(Act(context, session, _who), body)
            return Checked(valid=True)

        parameters = {
            **body_of,
            "request": (Request, Parameter.empty),
            "key": (idempotency.Key, None),
        }
        model, options = None, dict[str, Any](status_code=201)
        if accepted is None:
            options["responses"] = {200: {"model": self.answer, "description": "Unchanged"}}
        else:
            model, options = get_type_hints(accepted)["return"], {"status_code": 202}
        doc = function.__doc__
        self._route("POST", "", create, verb, doc, model, parameters, **options)
        check = Verb("checked", f"Check {self.noun.words}", scope=verb.scope)
        doc = f"Make all checks of `POST {self.noun.address}` without any effect."
        self._route("POST", ":validate", validate, check, doc, Checked, body_of)
        return function

    def on_cancel(
        self, accepted: Callable[[R], Any]
    ) -> Callable[[Callable[[Act, R], bool]], Callable[[Act, R], bool]]:
        """Add `:cancel`. The function cancels work, and returns whether it had not ended before.

        accepted: returns the answer, whose address is `links.self`.
        """

        def add(function: Callable[[Act, R], bool]) -> Callable[[Act, R], bool]:
            def cancel(context: Context, _who: Principal, response: Response, **path: str) -> Any:
                (key,) = path.values()
                with context.session() as session:
                    act = Act(context, session, _who)
                    row = self.require(session, _who, key)
                    if function(act, row):
                        act.audit(f"{self.noun.one}.cancelled", key)
                    answer = accepted(row)
                response.headers["Location"] = answer.links.self
                return answer

            verb = Verb("canceled", f"Cancel {self.noun.words}")
            doc, model = function.__doc__, get_type_hints(accepted)["return"]
            given = {"response": (Response, Parameter.empty)}
            path = f"{self._one}:cancel"
            self._route("POST", path, cancel, verb, doc, model, given, status_code=202)
            return function

        return add

    def on_change(
        self, function: Callable[[Act, R, dict[str, Any]], Mapping[str, Any]]
    ) -> Callable[[Act, R, dict[str, Any]], Mapping[str, Any]]:
        """Add the PATCH. The function returns the values to set for the fields that were given.

        Equal values change nothing. The field `version` of a body makes the change conditional.
        """
        verb = _given(self.noun.change)

        def change(context: Context, _who: Principal, body: BaseModel, **path: str) -> Any:
            (key,) = path.values()
            given = body.model_dump(exclude_unset=True)
            version = given.pop("version", None)
            if not given:
                names = [name for name in type(body).model_fields if name != "version"]
                limit = "any of " + ", ".join(names)
                raise BadField("body", {}, "nothing to change", limit=limit)
            with context.session() as session:
                act = Act(context, session, _who)
                row: Any = self.changeable(session, _who, key)
                if version is not None and version != row.version:
                    reason = "is outdated"
                    raise BadField("version", version, reason, limit=row.version, status=409)
                values, sent = function(act, row, given), _sent(body)
                if set_values(row, values):
                    stored = {name: values[name] for name in sent if name in values}
                    self._audit(act, verb, row, sent | stored)
                session.flush()
                return _read(self.answer, self._show(context, session, row))

        body_of = {"body": (verb.body, Parameter.empty)}
        self._route("PATCH", self._one, change, verb, function.__doc__, None, body_of)
        return function

    def on_remove(
        self, function: Callable[[Act, R], Mapping[str, Any] | None]
    ) -> Callable[[Act, R], Mapping[str, Any] | None]:
        """Add the DELETE. The function removes the row, and returns the audit's detail."""
        verb = _given(self.noun.remove)

        def remove(context: Context, _who: Principal, **path: str) -> Any:
            (key,) = path.values()
            with context.session() as session:
                act = Act(context, session, _who)
                row = self.changeable(session, _who, key)
                has_ended = any(getattr(row, name, None) is not None for name in _ENDS)
                detail = function(act, row)
                if not has_ended:
                    self._audit(act, verb, row, detail)
                session.flush()
                return _read(self.answer, self._show(context, session, row))

        self._route("DELETE", self._one, remove, verb, function.__doc__)
        return function

    def archives(self, sentence: str) -> None:
        """Add a DELETE that archives the row."""

        def archive(act: Act, row: Any) -> None:
            if row.archived_at is None:
                row.archived_at = row.updated_at = utcnow()

        archive.__doc__ = sentence
        self.on_remove(archive)

    def _audit(self, act: Act, verb: Verb, row: R, detail: Mapping[str, Any] | None) -> None:
        hidden = rows.secrets_of(self.row)
        if detail is not None:
            detail = {name: value for name, value in detail.items() if name not in hidden}
        act.audit(f"{self.noun.one}.{verb.done}", self.key_of(row), detail)

    @property
    def _one(self) -> str:
        """Return the end of the path of one; a name may have slashes."""
        return f"/{{{self.noun.one}_id}}" if self.by_id else f"/{{{self.noun.one}:path}}"

    def _route(
        self,
        method: str,
        path: str,
        function: Callable[..., Any],
        verb: Verb,
        doc: str | None = None,
        model: Any = None,
        parameters: Mapping[str, tuple[Any, Any]] | None = None,
        **options: Any,
    ) -> None:
        """Add a route; `parameters` are those of the function -> (annotation, default)."""
        given: dict[str, tuple[Any, Any]] = {
            "context": (_CONTEXT, Parameter.empty),
            "_who": (_SCOPES[verb.scope], Parameter.empty),
        }
        if path.startswith("/"):
            name = path[2:].partition("}")[0].partition(":")[0]
            given[name] = (str, Parameter.empty)
        function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation, default=default)
                for name, (annotation, default) in {**given, **(parameters or {})}.items()
            ]
        )
        self.router.add_api_route(
            self.noun.address + path,
            function,
            methods=[method],
            name=f"{function.__name__.strip('_')}_{self.noun.name}",
            summary=verb.sentence.partition(". ")[0].rstrip("."),
            description=inspect.cleandoc(doc or verb.sentence),
            response_model=model or self.answer,
            **options,
        )


def _the_row(_context: Context, _session: Session, row: R) -> R:
    return row


def _read(answer: type[BaseModel], shown: Any) -> Any:
    """Return the fields of a row, which may be read from the database while its session is open."""
    return rows.values(answer, shown) if isinstance(shown, Base) else shown


def set_values(row: Base, given: Mapping[str, Any]) -> bool:
    """Set what differs, count the version and the time of the change; return whether any did."""
    changed = {name: value for name, value in given.items() if getattr(row, name) != value}
    for name, value in changed.items():
        setattr(row, name, value)
    if changed and hasattr(row, "version"):
        row.version += 1
    if changed and hasattr(row, "updated_at"):
        row.updated_at = utcnow()
    return bool(changed)


def _given(verb: Verb | None) -> Verb:
    assert verb is not None
    return verb


def _sent(body: BaseModel) -> dict[str, Any]:
    """Return the fields of a body that were sent."""
    return body.model_dump(mode="json", exclude_unset=True, by_alias=True)


def _query(kind: Any, text: str) -> tuple[Any, Any]:
    """Return the annotation and the default of a filter."""
    if kind is None:
        return Filter, None
    if kind is bool:
        return Annotated[bool, Query(description=text)], False
    return Annotated[kind | None, Query(description=text)], None

"""Typed models of untrusted JSON, and the messages of their refusals.

A refused field becomes a FieldError with its dotted path, the value and the limit, which is read
from the model's own JSON schema: what OpenAPI documents is what a refusal says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from threading import Lock
from typing import Any, ClassVar, Self, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    GetCoreSchemaHandler,
    Tag,
    ValidationError,
    ValidatorFunctionWrapHandler,
    model_validator,
)
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, PydanticKnownError
from pydantic_core.core_schema import ErrorType

from gonogo import fields
from gonogo.errors import FieldError, FieldErrors

MAX_ERRORS = 20
"""Errors of one body that are reported, and its unknown fields that are looked at: the cost of a
refusal must not grow with a hostile body."""
_MESSAGES = {
    "extra_forbidden": "unknown field",
    "missing": "is required",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "dict_type": "must be an object",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "bool_type": "must be true or false",
    "int_type": "must be an integer",
    "int_parsing": "must be an integer",
    "int_from_float": "must be an integer",
    "float_type": "must be a number",
    "string_type": "must be text",
    "string_unicode": "must be text without lone surrogates",
    "string_pattern_mismatch": "doesn't match the pattern",
    "string_too_short": "is too short",
    "string_too_long": "is too long",
    "too_short": "has too few items",
    "too_long": "has too many items",
    "none_required": "must be null",
    "literal_error": "unknown value",
    "enum": "unknown value",
    "greater_than_equal": "is too small",
    "greater_than": "is too small",
    "less_than_equal": "is too large",
    "less_than": "is too large",
    "finite_number": "must be finite",
}
"""Messages by pydantic's error type; other types keep pydantic's message."""
_building = Lock()


class Refused(ValueError):
    """A FieldError inside a validator: pydantic collects it, with the place of the model."""

    def __init__(self, problem: FieldError) -> None:
        self.problem = problem
        super().__init__(str(problem))


class Model(BaseModel):
    """A frozen value that is read strictly: no coercion, no unknown fields, few errors.

    Its validator is built when it is first needed: importing a model must stay cheap.
    """

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", allow_inf_nan=False, defer_build=True
    )

    misspelled_first: ClassVar[bool] = False
    """Whether misspelled fields are named before all others, as suits a file that people write."""

    @classmethod
    def parse(cls, data: object, path: str = "") -> Self:
        """Parse JSON; `path` is its place in the request. Raises FieldError, or FieldErrors."""
        return cls._read(data, path)

    @classmethod
    def _read(cls, data: object, path: str = "") -> Self:
        if not cls.__pydantic_complete__:
            with _building:  # two threads that build one class disturb each other
                cls.model_rebuild()
        try:
            return cls.model_validate(data)
        except ValidationError as problem:
            errors = field_errors(problem.errors(include_url=False), cls, path)
            raise (errors[0] if len(errors) == 1 else FieldErrors(errors)) from None

    def replace(self, **changes: object) -> Self:
        """Return a checked copy with other fields. Raises FieldError."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        return self._read({**given, **changes})

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[BaseModel], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        schema = handler(source)
        _bound_lists(schema)
        return schema

    @model_validator(mode="before")
    @classmethod
    def _few(cls, data: object) -> object:
        """Drop all but the first unknown fields: each of them is an error of its own."""
        if not isinstance(data, Mapping):
            return data
        if cls.model_config.get("extra") == "allow":
            return bounded(dict(data))
        if len(data) > len(cls.model_fields) + MAX_ERRORS:
            known = {field.alias or name for name, field in cls.model_fields.items()}
            unknown = islice((name for name in data if name not in known), MAX_ERRORS)
            names = {*unknown, *known}
            return {name: value for name, value in data.items() if name in names}
        return dict(data)

    @model_validator(mode="after")
    def _checked(self) -> Self:
        try:
            self._normalize()
        except FieldError as problem:
            raise Refused(problem) from None
        return self

    def _normalize(self) -> None:
        """Check the rules that concern several fields, and put canonical values into `__dict__`.

        It runs before the object is shared. A FieldError that it raises names a field below the
        model.
        """


_SCALARS = frozenset({"int", "float", "str", "bool", "literal", "enum", "any", "none"})


def _bound_lists(schema: Any) -> None:
    """Let every list end at its first wrong item, or at MAX_ERRORS errors of its objects.

    Pydantic would make an error of each wrong item: 255,000 of them took 8 s.
    """
    if isinstance(schema, list | tuple):
        for part in schema:
            _bound_lists(part)
    elif isinstance(schema, dict):
        kind = schema.get("type")
        if kind == "function-wrap" and isinstance(schema["function"]["function"], _FewErrors):
            return
        for name, part in schema.items():
            if name == "fields" and isinstance(part, dict):  # a field may have any name
                _bound_lists(list(part.values()))
            elif name not in {"metadata", "serialization", "cls", "config", "ref", "type"}:
                _bound_lists(part)
        if kind in {"set", "frozenset", "tuple"} or (kind == "list" and not _objects(schema)):
            schema["fail_fast"] = True
        elif kind == "list":
            inner = dict(schema)
            function = {"type": "no-info", "function": _FewErrors(schema.get("max_length"))}
            metadata = schema.get("metadata")
            schema.clear()
            schema |= {"type": "function-wrap", "function": function, "schema": inner}
            if metadata is not None:
                schema["metadata"] = metadata


def _objects(schema: Mapping[str, Any]) -> bool:
    """Return whether the items of a list may be objects, whose errors people want all at once."""
    item = schema.get("items_schema", {})
    while item.get("type") in {"function-before", "function-after", "function-wrap", "nullable"}:
        item = item["schema"]
    return item.get("type") not in _SCALARS | {"dict", "list", "tuple"}


class _FewErrors:
    """Validates the items of a list one by one, and stops at MAX_ERRORS errors."""

    def __init__(self, max_length: int | None) -> None:
        self.max_length = max_length

    def __call__(self, value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
        if not isinstance(value, list) or not value:
            return validate(value)
        if self.max_length is not None and len(value) > self.max_length:
            sizes = {"field_type": "List", "max_length": self.max_length}
            raise PydanticKnownError("too_long", {**sizes, "actual_length": len(value)})
        items: list[Any] = []
        errors: list[InitErrorDetails] = []
        for place, item in enumerate(value):
            try:
                items += validate([item])
            except ValidationError as problem:
                details = problem.errors(include_url=False)
                errors += [
                    line_error(detail, (place, *detail["loc"][1:]))
                    for detail in details[:MAX_ERRORS]
                ]
                if len(errors) >= MAX_ERRORS:
                    break
        if errors:
            raise ValidationError.from_exception_data("list", errors)
        return items


def line_error(detail: Any, location: tuple[int | str, ...]) -> InitErrorDetails:
    """Return one of pydantic's errors, for raising it again with another location."""
    kind, context = detail["type"], detail.get("ctx") or {}
    error = kind if kind in _KNOWN else PydanticCustomError(kind, detail["msg"], context)
    return {"type": error, "loc": location, "input": detail["input"], "ctx": context}


_KNOWN = frozenset(get_args(ErrorType))


def _whole(value: object) -> object:
    """In JSON 3.0 is the integer 3."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def bounded(value: object) -> object:
    """Refuse a huge object as a whole, before each of its members is an error."""
    if isinstance(value, Mapping) and len(value) > MAX_MEMBERS:
        reason, limit = f"has {len(value)} members", f"at most {MAX_MEMBERS}"
        raise Refused(FieldError("", {}, reason, limit=limit))
    return value


def distinct(
    limit: str,
    reason: str = "occurs twice",
    *,
    key: Callable[[Any], Hashable] = lambda item: item,
    field: str = "",
) -> AfterValidator:
    """Return the annotation of a list whose items must differ by their key.

    field: the item's field that has the key, for the message; empty: the item itself.
    """

    def check(items: Sequence[Any]) -> Sequence[Any]:
        seen: set[Hashable] = set()
        for place, item in enumerate(items):
            value = key(item)
            if value in seen:
                where = fields.join(str(place), field) if field else str(place)
                raise Refused(FieldError(where, value, reason, limit=limit))
            seen.add(value)
        return items

    return AfterValidator(check)


def checked(read: Callable[[Any], Any]) -> AfterValidator:
    """Return the annotation of a value that a function reads, which may raise FieldError.

    The paths in its errors lie below the value.
    """

    def validate(value: Any) -> Any:
        try:
            return read(value)
        except FieldError as problem:
            raise Refused(problem) from None

    return AfterValidator(validate)


IN_WORDS = "x-limit"


def in_words(limit: str) -> dict[str, Any]:
    """Return the addition to a field's schema: its limit in words.

    Refusals quote it where the schema's limits say less, such as "at least 1 characters".
    """
    return {IN_WORDS: limit}


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("is blank")
    return text


NOT_BLANK = AfterValidator(_not_blank)
"""For a text: it has a character that shows."""
MAX_MEMBERS = 64
"""Members of an object whose names are free, such as one per tensor."""
Bounded = BeforeValidator(bounded)
WHOLE = BeforeValidator(_whole)
"""For an integer: 3.0 is one. It stands behind the limits, which the schema would lose else."""
NO_MINUS_ZERO = AfterValidator(lambda value: value + 0.0)
"""For a number: -0.0 becomes 0.0. It stands behind the limits, too."""
OBJECT, VALUE = Tag("<object>"), Tag("<value>")
"""Tags of union members are in angle brackets: `dotted` leaves them out of a path."""


def _kind(value: object) -> str:
    return OBJECT.tag if isinstance(value, Mapping | BaseModel) else VALUE.tag


ObjectOrValue = Discriminator(_kind)
"""Tells an OBJECT of a union from its VALUE."""


def is_tag(part: object) -> bool:
    """Return whether a part of pydantic's path is the tag of a union's member, not a field."""
    return isinstance(part, str) and part.startswith("<") and part.endswith(">")


def dotted(location: Iterable[object]) -> str:
    """Return pydantic's path as people write it: ("seeds", "<range>", 0) gives "seeds.0"."""
    return ".".join(str(part) for part in location if not is_tag(part) and part != "[key]")


def field_errors(
    details: Iterable[Mapping[str, Any]], model: type[BaseModel] | None = None, path: str = ""
) -> list[FieldError]:
    """Return pydantic's errors as ours, at most MAX_ERRORS; `path` is the place of the value.

    The schema of `model`, which was to be read, supplies limits that pydantic's error lacks.
    """
    if getattr(model, "misspelled_first", False):
        given = sorted(details, key=_weight)[:MAX_ERRORS]
    else:  # a misspelled field says more than the one that is missing
        given = sorted(islice(details, MAX_ERRORS), key=lambda item: item["type"] == "missing")
    places = [tuple(item["loc"]) for item in given]
    return [
        _field_error(item, model, path)
        for item, place in zip(given, places, strict=True)
        # a list that was left at its first wrong item is not too short
        if item["type"] != "too_short"
        or not any(other[: len(place)] == place for other in places if len(other) > len(place))
    ]


def _weight(item: Mapping[str, Any]) -> tuple[int, int]:
    """Return the sort key of an error: a misspelled field says more than one that is missing."""
    if item["type"] == "extra_forbidden":
        return 0, len(item["loc"])
    return 2 if item["type"] == "missing" else 1, 0


def _field_error(item: Mapping[str, Any], model: type[BaseModel] | None, path: str) -> FieldError:
    kind, location, value = str(item["type"]), tuple(item["loc"]), item.get("input")
    context = item.get("ctx") or {}
    field = ".".join(filter(None, (path, dotted(location))))
    cause = context.get("error")
    if isinstance(cause, Refused):
        return cause.problem.at(".".join(filter(None, (field, cause.problem.field))))
    reason = _MESSAGES.get(kind) or str(item["msg"]).removeprefix("Value error, ")
    names: Sequence[str] = ()
    limit = context.get("limit")
    if kind == "extra_forbidden":
        nodes = [] if model is None else list(_nodes(model, location[:-1]))
        names = next((list(node["properties"]) for node in nodes if "properties" in node), ())
        limit = "one of " + ", ".join(names) if names else None
        reason += fields.did_you_mean(location[-1], names)
    elif kind == "missing":
        value = None
    elif limit is None:
        nodes = [] if model is None else list(_nodes(model, location))
        names = next((node["enum"] for node in nodes if "enum" in node), ())
        names = names or _QUOTED.findall(str(context.get("expected", "")))
        limit = next(filter(None, map(_limit, nodes)), None) or _limit(_as_schema(context))
        reason += fields.did_you_mean(value, names)
    return FieldError(field, value, reason, limit=limit)


@cache
def _schema(model: type[BaseModel]) -> dict[str, Any]:
    return model.model_json_schema()


def _nodes(model: type[BaseModel], location: Sequence[object]) -> Iterator[Mapping[str, Any]]:
    """Yield the JSON schemas at pydantic's path, one for each member of a union."""
    schema = _schema(model)

    def below(node: Mapping[str, Any], rest: Sequence[object]) -> Iterator[Mapping[str, Any]]:
        if "$ref" in node:
            node = schema["$defs"][node["$ref"].rpartition("/")[2]]
        members = [*node.get("anyOf", ()), *node.get("oneOf", ())]
        if rest and is_tag(rest[0]):
            name = str(rest[0])[1:-1]
            named = [member for member in members if member.get("$ref", "").endswith("/" + name)]
            members, rest = named or members, rest[1:]
        if members:
            for member in members:
                yield from below(member, rest)
        elif not rest:
            yield node
        else:
            inner = node.get("properties", {}).get(rest[0]) or node.get("additionalProperties")
            if isinstance(rest[0], int):
                items = node.get("prefixItems", ())
                inner = items[rest[0]] if rest[0] < len(items) else node.get("items")
            if isinstance(inner, Mapping):
                yield from below(inner, rest[1:])

    return below(schema, location)


_FROM_CONTEXT = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
    "min_length": "minLength",
    "max_length": "maxLength",
    "pattern": "pattern",
    "expected": "const",
}
"""Names in the context of pydantic's errors -> those of a JSON schema."""


_QUOTED = re.compile(r"'([^']*)'")
"""A word of pydantic's "'open', 'acknowledged' or 'resolved'"."""


def _as_schema(context: Mapping[str, Any]) -> dict[str, Any]:
    """Return the limit in an error's context, which stands for that of a schema."""
    words = _QUOTED.findall(str(context.get("expected", "")))
    if len(words) > 1:
        return {"enum": words}
    return {name: context[key] for key, name in _FROM_CONTEXT.items() if key in context}


def _limit(node: Mapping[str, Any]) -> str | None:
    """Return the allowed values of a JSON schema in words; None where it has no limit."""
    if IN_WORDS in node:
        return str(node[IN_WORDS])
    if "enum" in node:
        return "one of " + ", ".join(map(str, node["enum"]))
    if "const" in node:
        return str(node["const"])
    parts = [
        words.format(_number(node[name]))
        for name, words in (
            ("minimum", ">= {}"),
            ("exclusiveMinimum", "> {}"),
            ("maximum", "<= {}"),
            ("exclusiveMaximum", "< {}"),
            ("multipleOf", "a multiple of {}"),
            ("pattern", "the pattern {}"),
        )
        if name in node
    ]
    for what, unit in (("Length", "characters"), ("Items", "items"), ("Properties", "members")):
        least, most = node.get(f"min{what}"), node.get(f"max{what}")
        unit = node.get("x-unit", unit)
        if least is not None and least == most:
            parts.append(f"{least} {unit}")
        elif least is not None and most is not None:
            parts.append(f"{least} to {most} {unit}")
        elif least is not None or most is not None:
            parts.append(f"at least {least} {unit}" if most is None else f"at most {most} {unit}")
    return " and ".join(parts) or None


def _number(value: object) -> str:
    short = isinstance(value, float) or (isinstance(value, int) and abs(value) < 1e6)
    return f"{value:g}" if short else str(value)

"""Parts of a test's spec: fields that are merged with others before the whole is read."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Discriminator, Field, GetPydanticSchema, Tag, create_model

from gonogo.spec.numerics import Numerics
from gonogo.spec.selections import SelectionTest, is_selection
from gonogo.spec.test_spec import NAMES_OF_KERNEL, TestSpec
from gonogo.spec.validation import Model


def _without_defaults(schema: dict[str, Any]) -> None:
    """Document no default: the value of a field that is left out comes from another part."""
    for node in schema.get("properties", {}).values():
        node.pop("default", None)


def _partial(model: type[Model], **validators: Any) -> type[Model]:
    """Return a model with the same fields, limits and examples, of which no field is required.

    Rules that concern several fields are those of the whole, which is read after the merge.
    """
    fields: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        about = Field(
            description=field.description,
            examples=field.examples,
            json_schema_extra=field.json_schema_extra,
        )
        fields[name] = (Annotated[field.annotation, *field.metadata, about], None)
    base = type("Part", (Model,), {"model_config": ConfigDict(json_schema_extra=_without_defaults)})
    return create_model(
        f"Partial{model.__name__.removesuffix('Spec')}",
        __base__=base,
        __doc__=f"Some fields of a {model.__name__}; the others come from where it is merged.",
        __validators__=validators,
        **fields,
    )


def _kind_of_test(value: object) -> str:
    is_one = is_selection(value) or isinstance(value, SelectionTest)
    return "<SelectionTest>" if is_one else "<PartialTest>"


def _form(model: type[Model]) -> GetPydanticSchema:
    """Return the annotation of a field that is read as a model made at run time."""
    return GetPydanticSchema(lambda _, handler: handler.generate_schema(model))


_PARTIAL_TEST = _partial(TestSpec, names=NAMES_OF_KERNEL)
PartialTest = Annotated[Model, _form(_PARTIAL_TEST)]
"""Fields of a kernel's test."""
PartialNumerics = Annotated[Model, _form(_partial(Numerics))]
"""Fields of a test's numerics."""
PartialTestBody = Annotated[
    Annotated[PartialTest, Tag("<PartialTest>")] | Annotated[SelectionTest, Tag("<SelectionTest>")],
    Discriminator(_kind_of_test),
]
"""Fields of a kernel's test, or a selection, which is whole."""


def no_fields() -> Model:
    """Return the part of a test that has no field."""
    return _PARTIAL_TEST()
